package flight

import (
	"fmt"
	"time"

	"github.com/notyet/notyet/schemas"
	"github.com/notyet/notyet/store"
	"github.com/notyet/notyet/store/line"
	"github.com/notyet/notyet/task"
)

// Due is for the loop that sends due tasks.
type Due struct{ Owned }

// releaseBatch bounds how many tasks are sent between two looks at the trust of the election: a
// paused owner may send so many on waking.
const releaseBatch = 256

// lookMost bounds how many tasks are looked at under the lock at once: most of them may be put off.
const lookMost = 1000

// Until is how long until something is to be sent, if nothing else happens; at most a second.
func (fl Due) Until() time.Duration {
	fl.mu.Lock()
	defer fl.mu.Unlock()
	return min(fl.due.untilDue(fl.clock.Now()), fl.gates.untilRelease())
}

// Take takes the tasks to be sent now, at most a batch. more: there may be others.
func (fl Due) Take() (send []Sendable, more bool) {
	now := fl.clock.Millis()
	send = make([]Sendable, 0, releaseBatch)
	fl.mu.Lock()
	defer fl.mu.Unlock()
	l, looked := &look{machine: fl.machine, now: now, at: time.Now()}, 0
	take := func(t *Task, waited bool) {
		looked++
		if !t.slot.abandoned && fl.admit(l, t, waited) {
			send = append(send, fl.sendable(t))
		}
	}
	for len(send) < releaseBatch && looked < lookMost && len(fl.due) > 0 && fl.due[0].at <= now {
		take(fl.due.pop(), false)
	}
	fl.gates.release(func() bool { return len(send) < releaseBatch }, func(t *Task) { take(t, false) })
	for g := range fl.outlets.waiting {
		for len(send) < releaseBatch && len(g.waiting) > 0 && fl.outlets.hasRoom(g, g.waiting[0]) {
			t := g.waiting[0]
			fl.outlets.waits(g, g.waiting[1:])
			take(t, true)
		}
	}
	return send, len(send) == releaseBatch || looked >= lookMost
}

// sendable hands out an admitted task.
func (fl Due) sendable(t *Task) Sendable {
	t.trace.begins()
	if t.call != nil {
		t.call.Asks = t.asks != nil
		return Sendable{Task: t, Record: t.record, Call: t.call}
	}
	isProbe := t.with.silent()
	if isProbe {
		fl.outlets.probes++
	}
	return Sendable{Task: t, Record: t.record, IsProbe: isProbe}
}

// admit says whether a due task is sent now. Otherwise something else has become of the task.
func (fl Due) admit(l *look, t *Task, waited bool) bool {
	fl.gates.arrives(t)
	return fl.act(l, l.judge(t, waited))
}

// act does what follows from a verdict, and says whether the task is sent.
func (fl Due) act(l *look, v verdict) bool {
	switch t := l.task; v {
	case reportMissing:
		fl.unreported(t)
	case ownerLeaves:
		fl.postpone(t, l.now, time.Millisecond) // its next owner sends it
	case runAsked:
		fl.runs = append(fl.runs, t)
		fl.kicks.Overlap.Now()
	case expired:
		fl.deadLetter(t, schemas.KindExpired, fmt.Sprintf("it could not be delivered within notyet-max-lateness %v of its due time", t.settings.MaxLateness))
	case noCallbacks:
		fl.deadLetter(t, schemas.KindCallback, "this dispatcher makes no HTTP callbacks: set callback.enabled")
	case paused, behindHeld:
		fl.gates.hold(fl.gates.byTopic[t.topic], t, t.attempt)
	case limited:
		fl.gates.byTopic[t.topic].push(t, l.now)
	case tooManyNames:
		fl.postpone(t, l.now, fl.outlets.unasked(t))
		fl.outlets.forgetIdle(l.outlet)
	default:
		return fl.actAtOutlet(l, v)
	}
	return false
}

// actAtOutlet does what follows from a verdict on a task at its outlet.
func (fl Due) actAtOutlet(l *look, v verdict) (sent bool) {
	t := l.task
	g := fl.outlets.enter(t, l.outlet.outletKey)
	fl.outlets.countName(g, t)
	fl.rejudgeParked(t, g)
	switch v {
	case sends, asks:
		if v == asks {
			t.asks = g.bar()
			t.asks.Ask(l.at)
		}
		fl.outlets.beginSending(g, t)
		t.status = sending
		return true
	case outletClosed:
		fl.putOff(t, g)
	default:
		fl.outlets.waits(g, append(g.waiting, t))
	}
	if g.origin != nil && v != behindEarlier {
		fl.metrics.NotSent.WithLabelValues(fl.outlets.whyNotCalled(g, t)).Inc()
	}
	return false
}

// A due run of a timer is released or dropped. A run that must be alone or is missed waits in runs
// until the database has said whether an earlier one is unfinished, or a later one on its way.

// Runs is for the loop that asks whether runs may begin.
type Runs struct{ *machine }

// Asked are runs for the database to judge: may they begin?
type Asked struct {
	*machine
	tasks []*Task
}

// overlapMost is how many runs are asked about at once.
const overlapMost = 500

// first tells whether a run was not started before.
func (t *Task) first() bool { return t.attempt == 0 && t.replay == 0 }

// missed tells whether a run is too late to be released as if nothing had been.
func (fl *machine) missed(t *Task, now int64) bool {
	return t.first() && !t.maybeSent() && task.RunMissed(t.settings.Run, t.due, now, fl.cfg.MisfireAfter)
}

// Take takes the next runs to ask about; nil: there are none.
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

// Starts are those of the runs whose slots are still ours, by due time.
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

// Started drops the runs refused by the database; the others wait for their release again. A run
// that became missed while the database kept its answer is asked about once more.
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
