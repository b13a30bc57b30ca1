package flight

import (
	"cmp"
	"slices"
	"time"
)

// parkedMost bounds the remembered tasks, at about 150 bytes each: the others are read again each
// time.
func (fl *machine) parkedMost() int { return max(3*fl.cfg.StageTasks, 10_000) }

// putOff puts off an unsent task: until its outlet is asked again.
func (fl *machine) putOff(t *Task, g *Outlet) {
	p := &parked{slot: t.slot, seq: t.seq, outlet: g, at: t.at, attempt: t.attempt, lane: t.lane}
	if bound := t.settings.MaxLateness.Milliseconds(); bound > 0 && !t.maybeSent() {
		p.expires = t.due + bound + 1
	}
	if !g.bar().IsOpen() && !t.slot.abandoned && fl.parked < fl.parkedMost() {
		fl.park(p)
	}
	fl.leaveParked(t, g, p)
}

func (fl *machine) park(p *parked) {
	fl.unpark(p.slot.parked[p.seq])
	if p.slot.parked == nil {
		p.slot.parked = map[int64]*parked{}
	}
	if p.outlet.parked == nil {
		p.outlet.parked = map[*parked]struct{}{}
	}
	p.slot.parked[p.seq], p.outlet.parked[p] = p, struct{}{}
	fl.parked++
}

// unpark forgets a parked task, if there is one.
func (fl *machine) unpark(p *parked) {
	if p != nil {
		delete(p.slot.parked, p.seq)
		delete(p.outlet.parked, p)
		fl.parked--
	}
}

// forgetParked forgets the parked tasks of a slot.
func (fl *machine) forgetParked(l *ownedSlot) {
	for _, p := range l.parked {
		fl.unpark(p)
	}
}

// leaveParked takes a task, maybe without its body, out of its place.
func (fl *machine) leaveParked(t *Task, g *Outlet, p *parked) {
	fl.gates.passesOver(g.topic, t.seq)
	pause := unsentPause
	if bar := g.bar(); !bar.IsOpen() {
		pause = bar.Wait(time.Now())
	}
	pos := max(fl.clock.Millis()+pause.Milliseconds(), p.at)
	if p.expires > 0 {
		pos = min(pos, p.expires)
	}
	fl.metrics.Postponed.Inc()
	fl.putBack(t, t.unsentState(), pos, p.attempt)
}

// parksAgain puts off a task without its body, if its outlet is still closed.
func (fl Bodies) parksAgain(t *Task) bool {
	p := t.slot.parked[t.seq]
	if p == nil {
		return false
	}
	g := p.outlet
	late, now := p.expires > 0 && fl.clock.Millis() >= p.expires, time.Now()
	if late || !g.putsOff(now) || g.bar().ReadToAsk(now) {
		fl.unpark(p)
		t.isProbe, t.parkedAt = true, g
		return false
	}
	fl.leaveParked(t, g, p)
	return true
}

// recallParked calls back the parked tasks of some outlets, now that they are open, the earliest
// first.
func (fl *machine) recallParked(outlets ...*Outlet) {
	var back []Transition
	for _, g := range outlets {
		for p := range g.parked {
			fl.unpark(p)
			back = append(back, recallOf(p.slot, p.seq, 0, p.at, p.attempt, p.lane))
		}
		g.parked = nil
	}
	slices.SortFunc(back, func(a, b Transition) int { return cmp.Or(cmp.Compare(a.Pos, b.Pos), cmp.Compare(a.Seq, b.Seq)) })
	fl.recall(back)
}

// quietAfter is how long an outlet may leave records unanswered before its tasks give way where
// room is scarce.
const quietAfter = time.Second

// giveWay puts off tasks of outlets without answers for a moment, if the room for bodies is scarce:
// others need the room.
func (fl Bodies) giveWay() {
	if !fl.staging.scarce() {
		return
	}
	for g := range fl.outlets.waiting {
		switch {
		case g.origin != nil && g.bar().IsOpen():
			fl.spreadWaiting(g, 0)
		case g.sending > 0 && time.Since(g.since) >= quietAfter:
			fl.postponeWaiting(g)
		}
	}
}

const (
	spreadEach = 50 * time.Millisecond // further apart than most origins answer
	spreadMost = time.Minute
)

// spreadWaiting puts off all but the first tasks that wait for a slow origin: one after the other,
// about as fast as the origin answers, so that they do not all come back at once.
func (fl *machine) spreadWaiting(g *Outlet, keep int) {
	if len(g.waiting) <= keep {
		return
	}
	now, first, each := fl.clock.Millis(), unsentPause, spreadEach
	if g.pace > 0 {
		first, each = time.Second, time.Second/time.Duration(g.pace)
	}
	off := g.waiting[keep:]
	fl.outlets.waits(g, g.waiting[:keep:keep])
	for i, t := range off {
		pause := first + min(time.Duration(i)*each, time.Duration(i)*spreadMost/time.Duration(len(off)))
		fl.postpone(t, now, pause)
	}
}

// putOffWaiting puts off tasks after a second's wait for an origin, because they hold up their
// slots. Tasks for the next two seconds stay, at the pace of the latest answers.
func (fl Outcomes) putOffWaiting(g *Outlet) {
	g.pace, g.answers = g.answers*int(time.Second/fl.cfg.CheckEvery()), 0
	if g.bar().IsOpen() && len(g.waiting) > 0 && g.waiting[0].at+slowCall.Milliseconds() < fl.clock.Millis() {
		fl.spreadWaiting(g, 2*g.pace)
	}
}

func (fl *machine) postponeWaiting(g *Outlet) {
	for _, t := range g.waiting {
		fl.putOff(t, g)
	}
	fl.outlets.waits(g, nil)
}

// rejudgeParked calls back the parked tasks of an outlet if the task read to ask there goes to
// another partition now: the partitions of the topic are known since, or have changed. The others
// might go there too, and nobody would ask in their name.
func (fl Due) rejudgeParked(t *Task, g *Outlet) {
	was := t.parkedAt
	t.parkedAt = nil
	if was != nil && g.partition >= 0 && was != g {
		fl.recallParked(was)
	}
}

// slowCall is how long a request may hold up its slot. Deliveries behind it would be in doubt if
// the dispatcher were killed, and a slot to be given away would wait.
const slowCall = time.Second
