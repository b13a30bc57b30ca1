package flight

// suspect queues a refused task, to be sent again by itself. It returns its outlet if nobody sends that one's suspects yet.
func (fl *Flight) suspect(t *Task) *Outlet {
	g := fl.outlets.of(t)
	t.trace.begins()
	fl.outlets.beginSending(g, t) // until its second answer: a silent target is noticed, and its tasks leave their slots
	g.suspects = append(g.suspects, Sendable{Task: t, Record: t.record})
	if g.trying {
		return nil
	}
	g.trying = true
	return g
}

// NextSuspect returns the next of an outlet's suspects. false: none is left, and whoever asked sends them no more.
func (fl *Flight) NextSuspect(g *Outlet) (Sendable, bool) {
	fl.mu.Lock()
	defer fl.mu.Unlock()
	if len(g.suspects) == 0 {
		g.trying = false
		fl.outlets.forgetIdle(g)
		return Sendable{}, false
	}
	one := g.suspects[0]
	g.suspects = g.suspects[1:]
	return one, true
}

// DropSuspect lets go of a suspect whose slot was lost: its next owner sends it, and nobody waits for its answer.
func (fl *Flight) DropSuspect(t *Task) {
	fl.mu.Lock()
	defer fl.mu.Unlock()
	fl.outlets.endSending(t)
	if fl.stuck[t.seq] == t {
		delete(fl.stuck, t.seq)
	}
}

// NotNow says that a suspect is not to be sent: its outlet does not answer, its target is paused, or it was set aside while it waited here.
// Its row has a later place then, comes from there, and may have ended meanwhile.
func (fl *Flight) NotNow(g *Outlet, t *Task) bool {
	fl.mu.Lock()
	defer fl.mu.Unlock()
	gate := fl.gates.byTopic[g.topic]
	return fl.stuck[t.seq] == t || g.silent() || gate != nil && gate.Paused
}
