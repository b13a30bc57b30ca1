package flight

import (
	"slices"
	"time"

	"github.com/notyet/notyet/store/line"
	"github.com/notyet/notyet/task"
)

// A task kept back by a policy is held: it stands in its slot, but at a place beyond every claim.
// The task is moved there once, when due, and called back once, when it may go. In between it is a
// pending task like any other, and costs nothing.

const (
	// lookEvery is how often a target's held places are looked at without a known held task.
	lookEvery = 30 * time.Second
	// heldPage is how many held tasks are read at a time, and how many claimed ones are judged.
	heldPage = 1000
	// gatesAtOnce is how many gates are looked behind in one round, so that no target waits long
	// for the others; idleAtOnce, how many of them may be gates without known tasks behind them.
	gatesAtOnce = 50
	idleAtOnce  = 5
	// leavingMost bounds the tasks on their way out of their places while others are sent after
	// them.
	leavingMost = 2000
)

// hold moves a task, after so many attempts, to a held place of its slot. Its body may not be
// known.
func (f *gates) hold(g *Gate, t *Task, made int) {
	f.flight.metrics.Held.Inc()
	g.behind = true
	if g.calledBackTo(t) {
		g.back = line.HeldPlace{Pos: task.Held(t.at), Seq: t.seq - 1}
	}
	g.coming.arrives(t.seq)
	g.holding = append(g.holding, t)
	f.flight.unpark(t.slot.parked[t.seq])
	f.flight.putBack(t, t.unsentState(), task.Held(t.at), made)
	f.flight.kicks.Held.Now()
}

// Undecided are claimed tasks in the lanes of gates, to be judged without reading their bodies.
type Undecided struct {
	*machine
	parts []undecided
}

// undecided are tasks of one gate.
type undecided struct {
	gate  *Gate
	tasks []*Task
}

// Seqs names the tasks.
func (u *Undecided) Seqs() (seqs []int64) {
	for _, part := range u.parts {
		for _, t := range part.tasks {
			seqs = append(seqs, t.seq)
		}
	}
	return seqs
}

// Undecided returns the first tasks of each gate to be judged, a page in all: all gates share a
// page, so that many of them cost one reading. Only Judged removes the tasks; nil: there are none.
func (fl Policies) Undecided() *Undecided {
	fl.mu.Lock()
	defer fl.mu.Unlock()
	var out []undecided
	for _, g := range fl.gates.byTopic {
		if len(g.unread)+len(g.judging) > 0 {
			out = append(out, undecided{gate: g})
		}
	}
	left := min(heldPage, leavingMost-fl.inbox.leavingTasks())
	slices.SortFunc(out, func(a, b undecided) int { return a.gate.undecided() - b.gate.undecided() })
	for i := range out { // the shortest first: the rest of their share is for the longer ones
		g := out[i].gate
		n := min(g.undecided(), max(left, 0)/(len(out)-i))
		for all := len(g.judging) == 0; all && len(g.judging) < n; {
			g.judging = append(g.judging, g.unread.pop())
		}
		n = min(n, len(g.judging))
		out[i].tasks = slices.Clone(g.judging[:n])
		left -= n
	}
	if out = slices.DeleteFunc(out, func(u undecided) bool { return len(u.tasks) == 0 }); len(out) == 0 {
		return nil
	}
	return &Undecided{fl.machine, out}
}

// Judged takes the heads of the tasks: each is held, or goes on if it is another target's.
func (u *Undecided) Judged(heads []line.Head) {
	bySeq := make(map[int64]line.Head, len(heads))
	for _, h := range heads {
		bySeq[h.Seq] = h
	}
	u.mu.Lock()
	defer u.mu.Unlock()
	var on []*Task
	for _, part := range u.parts {
		g := part.gate
		if g.judging = g.judging[len(part.tasks):]; len(g.judging) == 0 {
			g.judging = nil
		}
		if g.undecided() > 0 {
			u.kicks.Held.Now()
		}
		for _, t := range part.tasks {
			if h, ok := bySeq[t.seq]; !t.slot.abandoned && !u.gates.holdUnread(t, h, ok) {
				t.ungated = true
				on = append(on, t)
			}
		}
	}
	if len(on) > 0 {
		u.backlog.push(on)
		u.kicks.Fetch.Now()
	}
}

// holdUnread holds a task, known by its head, if its policy says so.
func (f *gates) holdUnread(t *Task, h line.Head, known bool) bool {
	if !known || h.Slot != t.slot.number || h.Pos != t.pos || h.State > task.StateRetry {
		return false
	}
	g := f.byTopic[h.Topic]
	if g == nil || !g.Paused && !t.slot.mayOvertake(h.Due) && (!g.behind || g.coming.has(t.seq)) {
		return false
	}
	if t.at = h.Due; h.Attempt > 0 {
		t.at = t.pos
		if r := g.coming.of(t, h.Attempt); r != nil {
			t.at = min(t.at, r.at)
		}
	}
	if f.precedes(g, t) {
		g.coming.add(&recalled{seq: t.seq, at: t.at, attempt: h.Attempt, slot: t.slot, until: time.Now().Add(recallWait)})
		return false
	}
	f.hold(g, t, h.Attempt)
	return true
}

// precedes says that a task comes before others that were called back: an earlier owner has called
// it back too, or it came late. Held, the task would be overtaken.
func (f *gates) precedes(g *Gate, t *Task) bool {
	return !g.Paused && t.slot.leaving.IsZero() && !t.slot.mayOvertake(t.at) && g.calledBackTo(t)
}

func (g *Gate) undecided() int { return len(g.unread) + len(g.judging) }

// Restless takes back tasks after a long wait, and returns the gates that may let more through than
// is at them or on its way. While nothing may be claimed there are none: recalled tasks would be
// given up on their way, and then more called back.
func (fl Policies) Restless(mayClaim bool) []*Gate {
	fl.mu.Lock()
	defer fl.mu.Unlock()
	return fl.gates.restless(mayClaim && !fl.full())
}

func (f *gates) restless(claims bool) (out []*Gate) {
	here, now, stops := 0, time.Now(), f.flight.stopping.Load() // here: at all gates together, or on their way
	for _, g := range f.byTopic {
		oldest := f.flight.clock.Millis() - g.patience(now, f.flight.staging.scarce()).Milliseconds()
		f.holdBack(g, func(t *Task) bool { // what is held of a slot that leaves is not called back here
			return stops || t.atGate <= oldest || g.behind && !t.slot.leaving.IsZero()
		})
		g.forgetHeld()
		g.coming.first(now)
		if here += g.coming.count(); !g.waitsForHeld() {
			here += len(g.waiting)
		}
	}
	if stops || !claims {
		return nil
	}
	for _, g := range f.byTopic {
		if !g.Paused && (g.behind || now.Sub(g.looked) >= lookEvery) && here < max(f.flight.cfg.StageTasks/4, 1) && g.wants(now) > 0 {
			out = append(out, g)
		}
	}
	return f.fewest(out)
}

// fewest leaves the gates of one round, those with the oldest look first: each has its turn.
func (f *gates) fewest(all []*Gate) (out []*Gate) {
	slices.SortFunc(all, func(a, b *Gate) int { return a.looked.Compare(b.looked) })
	idle := 0
	for _, g := range all {
		if !g.behind {
			if idle++; idle > idleAtOnce {
				continue
			}
		}
		if len(out) < gatesAtOnce {
			out = append(out, g)
		}
	}
	if len(out) < len(all) {
		f.flight.kicks.Held.Now()
	}
	return out
}

// wants is how many more tasks may be called back now. Tasks that wait for them take none of their
// room.
func (g *Gate) wants(now time.Time) int {
	n := g.ahead(now) - g.coming.count()
	if !g.waitsForHeld() {
		n -= len(g.waiting)
	}
	return n
}

// HeldLook is a look at the held places of a gate's target.
type HeldLook struct {
	*machine
	Topic string
	After line.HeldPlace
	Most  int // tasks that are read

	gate *Gate
	anew int
}

// LookBehind begins a look at the held tasks of a gate; Read takes the page.
func (fl Policies) LookBehind(g *Gate) HeldLook {
	fl.mu.Lock()
	defer fl.mu.Unlock()
	g.forgetHeld() // what is on its way from here on may be missing from what is read
	most := heldPage
	if !g.skips {
		most = min(max(2*g.wants(time.Now()), 100), heldPage)
	}
	return HeldLook{machine: fl.machine, Topic: g.Topic, After: g.after, Most: most, gate: g, anew: fl.gates.anew}
}

// Read calls back the next held tasks of a look.
func (look HeldLook) Read(page []line.HeldTask) {
	look.mu.Lock()
	defer look.mu.Unlock()
	g, now := look.gate, time.Now()
	if g.looked = now; g.Paused || g.after != look.After || look.gates.anew != look.anew {
		return // something was held before that place meanwhile, or lookAgain was called
	}
	var back []Transition
	defer func() {
		look.metrics.Recalled.Add(float64(len(back)))
		look.recall(back)
		if len(g.waiting) > 0 { // it may go now
			look.kicks.Release.Now()
		}
	}()
	more, earliest := len(page) == look.Most, g.earliest()
	for want := g.wants(now); len(page) > 0 && want > len(back); page = page[1:] {
		h := page[0]
		if task.HeldSince(h.Pos) >= earliest {
			look.kicks.Held.Now()
			return
		}
		g.after = h.HeldPlace
		if g.back.Compare(g.after) < 0 {
			g.back = g.after
		}
		l := look.slots[h.Slot]
		if h.Topic != g.Topic || l == nil {
			continue
		}
		if !g.behind { // what comes new goes behind it
			g.back = g.after
		}
		g.found, g.behind = true, true
		if g.coming.comes(h.Seq, l) || !l.leaving.IsZero() || h.Pos > l.callMost {
			continue
		}
		at := task.HeldSince(h.Pos)
		g.coming.add(&recalled{seq: h.Seq, at: at, attempt: h.Attempt, slot: l, until: now.Add(recallQueue)})
		one := recallOf(l, h.Seq, h.Pos, at, h.Attempt, h.Lane)
		one.gate = g
		back = append(back, one)
	}
	g.skips = more && len(back) == 0
	switch {
	case more || len(back) > 0:
		look.kicks.Held.Now()
	case len(page) == 0: // that was the end
		switch now := (line.HeldPlace{Pos: task.Held(look.clock.Millis())}); {
		case earliest < never:
		case !g.found:
			g.nothingHeld()
		case g.back.Compare(now) < 0: // what may be called back was, until now
			g.back = now
		}
		g.after, g.found = line.HeldPlace{}, false
	}
}

// holdBack holds some of the tasks at a gate.
func (f *gates) holdBack(g *Gate, goes func(*Task) bool) {
	for _, t := range g.takeBack(goes) {
		f.hold(g, t, t.attempt)
	}
}
