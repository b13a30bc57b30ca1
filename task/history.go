package task

import (
	"cmp"
	"slices"

	"github.com/notyet/notyet/schemas"
)

// History returns the known events of a task, from its row and the dead letters of its topic and
// id, in order. An event with At 0 happened at an unknown time, as a plain delivery, which writes
// nothing.
func History(t *Task, ph Phase, letters []DeadLetter) []schemas.Event {
	var out []schemas.Event
	add := func(state schemas.State, at int64, change func(*schemas.Event)) {
		e := schemas.Event{Topic: t.Topic, ID: t.ID, State: state, At: at, Due: t.Due}
		if change != nil {
			change(&e)
		}
		if e.Attempt > 0 {
			e.Lateness = schemas.LatenessUnknown
		}
		out = append(out, e)
	}
	dead := false // the letter of this very death is there
	for _, d := range letters {
		state := schemas.StateDead
		if d.Kind == schemas.KindRejected {
			state = schemas.StateRejected
		}
		dead = dead || d.Seq == t.Seq && d.Replay == t.Replay
		add(state, d.DiedAt, func(e *schemas.Event) { e.Due, e.Attempt, e.Kind, e.Reason = d.Due, d.Attempt, d.Kind, d.Reason })
		if d.ReplayedAt > 0 {
			add(schemas.StateScheduled, d.ReplayedAt, func(e *schemas.Event) { e.Due, e.Reason = d.ReplayedAt, "replayed by "+d.ReplayedBy })
		}
	}
	if t.Replay == 0 && !t.MadeByCancel() { // a replay is told by its letter
		add(schemas.StateScheduled, t.Created, nil)
	}
	if t.Unread.At > 0 {
		e := unreadEvent(t, t.Unread)
		e.At = t.Unread.At
		out = append(out, e)
	}
	latest := 0 // failure that is known
	for _, f := range t.Failures {
		replay, n := SplitSendNumber(f.Number)
		if replay == t.Replay {
			latest = n
		}
		add(schemas.StateRetrying, f.At, func(e *schemas.Event) { e.Attempt, e.Reason = n, f.Reason })
	}
	attempt := func(n int) func(*schemas.Event) { return func(e *schemas.Event) { e.Attempt = n } }
	switch {
	case ph == Ended:
		switch t.State {
		case StateCancelled, StateTombstone:
			add(schemas.StateCancelled, t.Pos, nil)
		case StateStopped, StateHalted:
			add(schemas.StateStopped, t.Pos, attempt(t.Attempt))
		case StateSucceeded:
			add(schemas.StateSucceeded, t.Pos, attempt(t.Attempt))
		case StateDead:
			if !dead { // it was purged
				add(schemas.StateDead, t.Pos, attempt(t.Attempt))
			}
		default:
			add(schemas.StateSucceeded, 0, attempt(t.Attempt+1))
		}
	case t.State == StateReport:
		add(schemas.StateDispatched, t.sentAt(), attempt(t.Attempt))
	case t.State == StateRetry && t.Attempt > latest:
		add(schemas.StateRetrying, 0, attempt(t.Attempt)) // its place says when the next one is due, and the pause was the report's, the receiver's or the backoff's
	}
	known := len(out)
	if known > 0 && out[known-1].At == 0 { // it came last
		known--
	}
	slices.SortStableFunc(out[:known], func(a, b schemas.Event) int { return cmp.Compare(a.At, b.At) })
	return out
}

// sentAt is when the delivery with the awaited report was acknowledged; 0: not known.
func (t *Task) sentAt() int64 {
	body, err := schemas.DecodeBody(t.Body)
	if err != nil {
		return 0
	}
	return max(t.Pos-body.Settings.AckTimeout.Milliseconds(), 0)
}
