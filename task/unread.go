package task

import "github.com/notyet/notyet/schemas"

// unread tells of an unreadable report, and changes nothing. It tells once for each delivery of the
// task: however many such reports come, there are no more events and writes than deliveries.
func unread(cur *Task, reason string, now int64) Verdict {
	v := Verdict{Next: cur}
	if cur == nil || cur.MadeByCancel() {
		return v
	}
	u := NewNote(cur.Replay, cur.Attempt, now, reason)
	if cur.Unread.At > 0 && cur.Unread.Number >= u.Number {
		return v
	}
	v.Unread = u
	v.Event = unreadEvent(cur, u)
	return v
}

func unreadEvent(t *Task, u Note) schemas.Event {
	_, attempt := SplitSendNumber(u.Number)
	e := schemas.Event{Topic: t.Topic, ID: t.ID, State: schemas.StateRejected, Due: t.Due, Attempt: attempt, Kind: schemas.KindReport, Reason: u.Reason}
	if attempt > 0 {
		e.Lateness = schemas.LatenessUnknown
	}
	return e
}
