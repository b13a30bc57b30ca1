package flight

import (
	"fmt"
	"slices"
	"time"

	"github.com/notyet/notyet/internal/faultpoint"
	"github.com/notyet/notyet/schemas"
	"github.com/notyet/notyet/store"
	"github.com/notyet/notyet/store/line"
	"github.com/notyet/notyet/task"
)

// unsentPause is for how long an unsent task is put off.
const unsentPause = 5 * time.Second

// putBack puts a task back: out of its place, to a later one, until pos. Each task that is put off,
// set aside or held comes here, maybe without its body. The state says whether the task can be
// cancelled meanwhile.
func (fl *machine) putBack(t *Task, state task.State, pos int64, attempt int) {
	fl.leave(t, Transition{Transition: line.Transition{State: state, Pos: pos, Attempt: attempt, Lane: t.lane}})
}

// unsentState is the state of an unsent task that is put back. The row's state stays, and says more
// than that a cancel is possible: a caller may have been told that a cancel is too late. No caller
// can change a task that may have been sent.
func (t *Task) unsentState() task.State {
	if t.doubt {
		return task.StateRetry
	}
	return task.StateLine
}

// aliveState is the state of a task whose dead letter cannot be stored. One that waited for a
// report waits on. One that may have been sent cannot be cancelled: its last attempt is made again,
// with the same key.
func (t *Task) aliveState(e Transition) task.State {
	switch {
	case e.EndsWait:
		return task.StateLine
	case e.Dead.Attempt > t.attempt:
		return task.StateRetry
	}
	return t.unsentState()
}

// retry puts a task back for another attempt, due at pos, after so many made.
func (t *Task) retry(pos int64, made int, reason string) Transition {
	return Transition{
		Transition: line.Transition{State: task.StateRetry, Pos: pos, Attempt: made, Idle: made > t.attempt || t.idle && !t.doubt, Lane: t.lane.In(task.ClassRetried),
			Failure: task.NewNote(t.replay, made, 0, reason),
			Events:  []schemas.Event{{State: schemas.StateRetrying, Attempt: made, Lateness: schemas.LatenessUnknown, Reason: reason}}},
	}
}

// postpone puts a task off for a while that was not sent, or was refused.
func (fl *machine) postpone(t *Task, now int64, pause time.Duration) {
	pos := now + pause.Milliseconds()
	if bound := t.settings.MaxLateness.Milliseconds(); bound > 0 && !t.maybeSent() {
		pos = max(min(pos, t.due+bound+1), now+1)
	}
	fl.metrics.Postponed.Inc()
	fl.putBack(t, t.unsentState(), pos, t.attempt)
}

// setAside takes a task with an unanswered sending out of its place, and out of reach of a cancel.
func (fl *machine) setAside(t, original *Task) {
	const aside = 10_000
	fl.putBack(t, task.StateRetry, fl.clock.Millis()+aside, original.attempt)
}

// deadLetter ends a task with a dead letter.
func (fl *machine) deadLetter(t *Task, kind, reason string) {
	fl.leave(t, fl.deadTransition(t, kind, reason))
}

func (fl *machine) deadTransition(t *Task, kind, reason string) Transition {
	return Transition{
		Transition: line.Transition{State: task.StateDead, Attempt: t.attempt, Lane: t.lane, Dead: &task.DeadLetter{Seq: t.seq, Kind: kind, Topic: t.topic, TaskID: t.id, Due: t.due,
			Attempt: t.attempt, Replay: t.replay, Reason: reason, DiedAt: fl.clock.Millis(), Body: t.body},
			Events: []schemas.Event{{State: schemas.StateDead, Kind: kind, Attempt: t.attempt, Lateness: schemas.LatenessUnknown, Reason: reason}}},
	}
}

// leave takes a task out of its place with the next settlement.
func (fl *machine) leave(t *Task, e Transition) {
	e.Seq, e.Slot, e.Epoch, e.From = t.seq, t.slot.number, t.slot.epoch, t.pos
	e.task = t
	e.Events = slices.DeleteFunc(e.Events, func(ev schemas.Event) bool { return !task.Published(t.settings.Events, ev.State) })
	if len(e.Events) == 0 {
		e.Events = nil // many may wait for the database
	}
	if e.Dead != nil {
		e.alive, e.tried, e.MaybeSent = t.aliveState(e), t.attempt, t.maybeSent()
	}
	for i := range e.Events {
		ev := &e.Events[i]
		ev.Topic, ev.ID, ev.Due, ev.At = t.topic, t.id, t.due, fl.clock.Millis()
	}
	fl.unstage(t)
	fl.proofs.forget(t.seq)
	if t.slot.abandoned { // its next owner decides
		return
	}
	t.status = leaving
	fl.inbox.leaves(e)
	fl.kicks.Settle.Now()
}

// A task that was put back is called back when it may be sent after all: its outlet answers again,
// or its target's gate has room. The task stands in the database, in its slot, at a later place,
// and the settlement moves it to its proper place.

// recallMost is how many tasks are called back in one round of settling: 20 000 a second.
const recallMost = 1000

// recallOf calls a task of a slot back to its due place. from is its held place; 0: the task is not
// held.
func recallOf(l *ownedSlot, seq, from, pos int64, attempt int, lane task.Lane) Transition {
	return Transition{task: &Task{slot: l, seq: seq, lane: lane},
		Transition: line.Transition{Seq: seq, Slot: l.number, Epoch: l.epoch, Recall: true, From: from, Pos: pos, Attempt: attempt, Lane: lane}}
}

// recall hands tasks that are called back to the settlement.
func (fl *machine) recall(back []Transition) {
	if len(back) > 0 {
		fl.inbox.recall(back)
		fl.kicks.Settle.Now()
	}
}

// mayRecall separates the recalls of tasks whose last transition is settled from the others.
func mayRecall(recalls, unsettled []Transition) (now, early []Transition) {
	if len(recalls) == 0 || len(unsettled) == 0 {
		return recalls, nil
	}
	wait := make(map[int64]bool, len(unsettled))
	for _, e := range unsettled {
		wait[e.Seq] = true
	}
	for _, e := range recalls {
		if wait[e.Seq] {
			early = append(early, e)
		} else {
			now = append(now, e)
		}
	}
	return now, early
}

// recalled has the slots of recalled tasks claimed: the tasks stand behind the claimed places,
// though they should have gone already. Their gates learn which of them come.
func (a Attempt) recalled(moved []store.Place) {
	inLine := map[int64]bool{}
	for _, m := range moved {
		inLine[m.Seq] = !task.IsHeld(m.Pos)
	}
	until := time.Now().Add(recallWait)
	for _, e := range a.Transitions {
		if l := a.slots[e.Slot]; e.Recall && l != nil {
			l.urgent = min(l.urgent, e.Pos)
		}
		if e.gate != nil {
			e.gate.coming.settled(e.Seq, inLine[e.Seq], until)
		}
	}
}

// longestTransit is for how long, at most, a report accepted in time is on its way to the database
// after the wait.
const longestTransit = time.Second

// transit is how long after the end of a wait a missing report counts: as long as the look-ahead,
// by which a redelivery may be late.
func (c Config) transit() time.Duration { return min(c.LookAhead, longestTransit) }

// unreported ends the wait for a report: another attempt after its backoff, or none is left. Only
// the settlement knows whether a report came in time: see store/intake/reportwait.go.
func (fl *machine) unreported(t *Task) {
	_ = faultpoint.At(faultpoint.DispatcherUnreported)
	reason := fmt.Sprintf("no report on attempt %d within %v", t.attempt, t.settings.AckTimeout)
	now := fl.clock.Millis()
	var e Transition
	if t.attempt-t.snoozed >= t.settings.MaxAttempts {
		e = fl.deadTransition(t, schemas.KindDead, task.Exhausted(t.attempt-t.snoozed, reason))
	} else {
		waited := min(max(now-t.pos, 0), fl.cfg.transit().Milliseconds()) // the backoff counts from the end of the wait
		e = t.retry(fl.clock.Latest()+max(t.settings.Pause(t.attempt, t.snoozed, schemas.NoRetryAfter).Milliseconds()-waited, 0)+1, t.attempt, reason)
	}
	e.EndsWait = true
	fl.leave(t, e)
}
