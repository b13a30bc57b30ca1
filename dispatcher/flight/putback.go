package flight

import (
	"slices"
	"time"

	"github.com/notyet/notyet/schemas"
	"github.com/notyet/notyet/store"
	"github.com/notyet/notyet/task"
)

// leaveBehind ends delivered tasks one by one, where a task before them holds done back: its target does not answer, or its body is not
// read yet. That task may take longer than the slot stays here, and the next owner would send all behind it again. A settlement that
// is under way may count those that it can close, and only those.
func (fl *Flight) leaveBehind(l *ownedSlot) {
	to, _ := l.closable()
	for _, t := range l.open() {
		if t.status == settled && t.pos > to {
			fl.settleApart(t)
		}
	}
}

// unsentPause is for how long a task is put off that was not sent.
const unsentPause = 5 * time.Second

// postpone puts a task off that was not sent, or was refused: unless a caller was told that it is too late, or an earlier owner may have
// sent it, it can be cancelled.
func (fl *Flight) postpone(t *Task, now int64, pause time.Duration) {
	fl.metrics.Postponed.Inc()
	state := task.StateLine
	if t.maybeSent() {
		state = task.StateRetry
	}
	fl.leave(t, Transition{Transition: store.Transition{State: state, Pos: now + pause.Milliseconds(), Attempt: t.attempt, Lane: t.lane}})
}

// setAside takes a task out of its place whose earlier sending is still unanswered. It stays out of reach of a cancel.
func (fl *Flight) setAside(t, original *Task) {
	const aside = 10_000
	fl.leave(t, Transition{Transition: store.Transition{State: task.StateRetry, Pos: fl.clock.Millis() + aside, Attempt: original.attempt, Lane: t.lane}})
}

// deadLetter ends a task with a dead letter.
func (fl *Flight) deadLetter(t *Task, kind, reason string) {
	fl.leave(t, fl.deadTransition(t, kind, reason))
}

func (fl *Flight) deadTransition(t *Task, kind, reason string) Transition {
	return Transition{
		Transition: store.Transition{State: task.StateDead, Attempt: t.attempt, Lane: t.lane, Dead: &task.DeadLetter{Seq: t.seq, Kind: kind, Topic: t.topic, TaskID: t.id, Due: t.due,
			Attempt: t.attempt, Replay: t.replay, Reason: reason, DiedAt: fl.clock.Millis(), Body: t.body}},
		events: []schemas.Event{{State: schemas.StateDead, Kind: kind, Attempt: t.attempt, Lateness: schemas.LatenessUnknown, Reason: reason}},
	}
}

// leave takes a task out of its place with the next settlement.
func (fl *Flight) leave(t *Task, e Transition) {
	e.Seq, e.Slot, e.Epoch, e.From = t.seq, t.slot.number, t.slot.epoch, t.pos
	e.task = t
	e.events = slices.DeleteFunc(e.events, func(ev schemas.Event) bool { return !task.Published(t.settings.Events, ev.State) })
	for i := range e.events {
		ev := &e.events[i]
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
