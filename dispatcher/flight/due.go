package flight

import (
	"fmt"
	"time"

	"github.com/notyet/notyet/schemas"
	"github.com/notyet/notyet/store"
	"github.com/notyet/notyet/store/line"
	"github.com/notyet/notyet/task"
)

// Due is for the loop that sends what is due.
type Due struct{ Owned }

// releaseBatch bounds how many tasks are sent between two looks at whether the election still trusts us, which is how
// many a paused owner may send on waking.
const releaseBatch = 256

// lookMost bounds how many tasks are looked at under the lock at once: most of them may be put off.
const lookMost = 1000

// Until is how long until something is to be sent, if nothing else happens; at most a second.
func (fl Due) Until() time.Duration {
	fl.mu.Lock()
	defer fl.mu.Unlock()
	return min(fl.due.untilDue(fl.clock.Now()), fl.gates.untilRelease())
}

// Take takes what is to be sent now, at most a batch. more says that there may be more.
func (fl Due) Take() (send []Sendable, more bool) {
	now := fl.clock.Millis()
	send = make([]Sendable, 0, releaseBatch)
	fl.mu.Lock()
	defer fl.mu.Unlock()
	looked := 0
	take := func(t *Task, waited bool) {
		looked++
		if !t.slot.abandoned && fl.admit(t, now, waited) {
			send = append(send, fl.sendable(t))
		}
	}
	for len(send) < releaseBatch && looked < lookMost && len(fl.due) > 0 && fl.due[0].at <= now {
		take(fl.due.pop(), false)
	}
	fl.gates.release(func() bool { return len(send) < releaseBatch }, func(t *Task) { take(t, false) })
	for g := range fl.outlets.waiting {
		for len(send) < releaseBatch && len(g.waiting) > 0 && fl.room(g, g.waiting[0]) {
			t := g.waiting[0]
			fl.outlets.waits(g, g.waiting[1:])
			take(t, true)
		}
		g.leaveSeat()
	}
	return send, len(send) == releaseBatch || looked >= lookMost
}

// sendable hands out an admitted task. A callback takes along the room that was taken for it at its origin.
func (fl Due) sendable(t *Task) Sendable {
	t.trace.begins()
	if t.call != nil {
		one := Sendable{Task: t, Record: t.record, Call: t.call, Seat: t.with.seat}
		t.with.seat = nil
		fl.underWay[t] = time.Now()
		return one
	}
	isProbe := t.with.silent()
	if isProbe {
		fl.outlets.probes++
	}
	return Sendable{Task: t, Record: t.record, IsProbe: isProbe}
}

// admit decides what becomes of a due task: true means that it is to be sent now. One that has waited for its target goes
// before one that has not.
func (fl Due) admit(t *Task, now int64, waited bool) bool {
	fl.gates.arrives(t)
	if t.state == task.StateReport {
		fl.unreported(t)
		return false
	}
	if t.slot.leavingFor() > fl.cfg.lastSend() {
		fl.postpone(t, now, time.Millisecond) // its next owner sends it
		return false
	}
	if t.settings.Run.Timer != "" && !fl.admitsRun(t, now) {
		return false
	}
	if bound := t.settings.MaxLateness.Milliseconds(); bound > 0 && now > t.due+bound && !t.maybeSent() {
		fl.deadLetter(t, schemas.KindExpired, fmt.Sprintf("it could not be delivered within notyet-max-lateness %v of its due time", t.settings.MaxLateness))
		return false
	}
	if t.call != nil && fl.origins == nil {
		fl.deadLetter(t, schemas.KindCallback, "this dispatcher makes no HTTP callbacks: set callback.enabled")
		return false
	}
	if fl.gates.detains(t, now) {
		return false
	}
	g := fl.outlets.of(t)
	if pause := fl.outlets.oneTooMany(g, t); pause > 0 {
		fl.postpone(t, now, pause)
		fl.outlets.forgetIdle(g)
		return false
	}
	fl.rejudgeParked(t, g)
	switch closed := g.putsOff(time.Now()); {
	case closed && g.refuses() && !fl.outlets.hasRoom(g, t): // others may ask
		fl.putOff(t, g)
		return false
	case closed && (g.silent() && !g.origin && fl.outlets.probes >= probesAtOnce || !g.closed.claim(time.Now())):
		fl.putOff(t, g)
		return false
	case closed && g.origin && !fl.room(g, t):
		g.closed.probing = false
		fl.putOff(t, g)
		return false
	case closed:
	case !waited && len(g.waiting) > 0 || !fl.room(g, t):
		if g.silent() { // an origin, and it is known now
			fl.putOff(t, g)
		} else {
			fl.outlets.waits(g, append(g.waiting, t))
		}
		return false
	}
	fl.outlets.beginSending(g, t)
	t.status = sending
	return true
}

// room says whether a task may be sent through its outlet. At an origin it takes the room for it.
func (fl Due) room(g *Outlet, t *Task) bool {
	switch {
	case !fl.outlets.hasRoom(g, t):
		return false
	case !g.origin || g.seat != nil:
		return true
	}
	seat, absence := fl.origins.Enter(g.topic, t.tenant)
	if absence.Down {
		fl.originDown(g, absence.Wait)
	}
	g.seat = seat
	return seat != nil
}

// leaveSeat gives back room at an origin that no task has used.
func (g *Outlet) leaveSeat() {
	if g.seat != nil {
		g.seat.Leave()
		g.seat = nil
	}
}

// A timer's run that is due is released or dropped. A run that must be alone or is missed waits in runs until the database has said whether
// an earlier one is unfinished, or a later one on its way.

// Runs is for the loop that asks whether runs may begin.
type Runs struct{ *machine }

// Asked are runs of which the database is to say whether they may begin.
type Asked struct {
	*machine
	tasks []*Task
}

// overlapMost is how many runs are asked about at once.
const overlapMost = 500

// admitsRun tells whether a run that is due may be released now. If not, it waits for what the database says.
func (fl Due) admitsRun(t *Task, now int64) bool {
	if t.started || !fl.missed(t, now) && !(t.first() && t.settings.Run.Alone) { // in doubt, one that must be alone asks too: what was not started was not sent
		return true
	}
	fl.runs = append(fl.runs, t)
	fl.kicks.Overlap.Now()
	return false
}

// first tells whether a run was not started before.
func (t *Task) first() bool { return t.attempt == 0 && t.replay == 0 }

// missed tells whether a run is too late to be released as if nothing had been.
func (fl *machine) missed(t *Task, now int64) bool {
	return t.first() && !t.maybeSent() && task.RunMissed(t.settings.Run, t.due, now, fl.cfg.MisfireAfter)
}

// Take takes runs of which the database is to say whether they may begin.
func (fl Runs) Take() *Asked {
	fl.mu.Lock()
	defer fl.mu.Unlock()
	n := min(len(fl.runs), overlapMost)
	if n == 0 {
		return nil
	}
	asked := &Asked{fl.machine, fl.runs[:n:n]}
	if fl.runs = fl.runs[n:]; len(fl.runs) == 0 {
		fl.runs = nil
	}
	return asked
}

// Starts are those of the runs whose slots are still ours, in the order in which they are due.
func (a *Asked) Starts() []line.Start {
	a.mu.Lock()
	defer a.mu.Unlock()
	now := a.clock.Millis()
	var out []line.Start
	for _, t := range a.tasks {
		if t.slot.abandoned {
			continue
		}
		t.missed = a.missed(t, now)
		out = append(out, line.Start{SlotEpoch: store.SlotEpoch{Slot: t.slot.number, Epoch: t.slot.epoch}, Seq: t.seq, Topic: t.topic, Timer: t.settings.Run.Timer,
			Run: task.RunInstant(t.id), Alone: t.settings.Run.Alone, Missed: t.missed, Skip: t.settings.Run.DropFrom == t.due})
	}
	return out
}

// Started drops the runs that the database refused; the others wait for their release again. A run that became missed while the database
// kept its answer is asked about once more.
func (a *Asked) Started(refused map[int64]line.Refusal) {
	a.mu.Lock()
	defer a.mu.Unlock()
	now := a.clock.Millis()
	for _, t := range a.tasks {
		switch {
		case t.slot.abandoned:
		case refused[t.seq] != 0:
			a.dropRun(t, refused[t.seq])
		default:
			t.started = t.missed || !a.missed(t, now)
			a.due.push(t)
		}
	}
	a.kicks.Release.Now()
}

// dropRun ends a run without a dead letter.
func (a *Asked) dropRun(t *Task, why line.Refusal) {
	label, event := DropOverlap, task.Overlapping
	if why == line.RunMissed {
		label, event = DropMissed, task.Missed
	}
	a.metrics.DroppedRuns.WithLabelValues(label).Inc()
	a.leave(t, Transition{Transition: line.Transition{State: task.StateDead, Attempt: t.attempt, Lane: t.lane,
		Events: []schemas.Event{event(t.topic, t.id, t.due)}}})
}
