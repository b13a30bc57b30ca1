package task

import "github.com/notyet/notyet/schemas"

// Proof is a send log's knowledge of a task that an older database still takes for unsent.
type Proof struct {
	Taken   int64  // Unix ms: when a dispatcher noted that it was about to send it; nobody could change it any more
	Replay  int    // the newest delivery: the replay that it belongs to
	Attempt int    // and its number, from 1
	At      int64  // Unix ms: when Kafka answered
	Refused string // why Kafka, or the receiver of a callback, refused it for good; empty: it was acknowledged
}

// Exceeds tells whether the proof goes beyond the task's row.
func (p Proof) Exceeds(t *Task) bool {
	return p.Replay > t.Replay || p.Replay == t.Replay && p.Attempt > t.Attempt
}

// ClaimMargin is in ms. It covers how far a dispatcher takes tasks ahead of their due time, and the
// difference of two clocks. A request accepted within this margin before the claim counts as late.
// At worst both take effect; the opposite mistake would lose the request.
const ClaimMargin = 1000

// Follows tells whether the delivery came after the request, which left the task in the line. Any
// other request has come later: otherwise there would have been no delivery.
func (p Proof) Follows(r *schemas.Request) bool {
	stays := r.Op == schemas.OpFire || r.Op == schemas.OpSchedule && (r.Settings.IfExists == schemas.Keep || r.Settings.IfExists == schemas.Once)
	return stays && r.Accepted < p.Taken-ClaimMargin
}

// Prove returns the verdict on a task delivered according to the proof: it has ended, or waits for
// its report. A task with an unreadable body stays: it cannot have been sent.
func Prove(cur *Task, p Proof, now int64) Verdict {
	body, err := schemas.DecodeBody(cur.Body)
	if err != nil {
		return Verdict{Next: cur}
	}
	t := *cur
	v := Verdict{Next: &t}
	t.Replay, t.Attempt = p.Replay, p.Attempt
	v.Event = schemas.Event{Topic: t.Topic, ID: t.ID, Due: t.Due, At: now, Attempt: t.Attempt, Lateness: max(p.At-t.Due, 0)}
	switch {
	case p.Refused != "" && schemas.IsOrigin(t.Topic):
		v.Event.State, v.Event.Lateness, v.Event.Kind, v.Event.Reason = schemas.StateDead, schemas.LatenessUnknown, schemas.KindCallback, p.Refused
		v.Dead = NewDeadLetter(t, v.Event.Kind, v.Event.Reason, now)
		t.Slot, t.Pos, t.State = OutOfLine, now, StateDead
	case p.Refused != "":
		t.Attempt-- // one that was refused does not count as made
		v.Event.State, v.Event.Attempt, v.Event.Lateness = schemas.StateDead, t.Attempt, schemas.LatenessUnknown
		v.Event.Kind, v.Event.Reason = schemas.KindUndeliverable, RefusedByKafka(p.Refused)
		v.Dead = NewDeadLetter(t, v.Event.Kind, v.Event.Reason, now)
		t.Slot, t.Pos, t.State = OutOfLine, now, StateDead
	case body.Settings.Ack == schemas.AckReport:
		v.Event.State = schemas.StateDispatched
		t.Pos, t.State, t.Class = p.At+body.Settings.AckTimeout.Milliseconds(), StateReport, ClassRetried
	default:
		v.Event.State = schemas.StateSucceeded
		t.Slot, t.Pos, t.State = OutOfLine, now, StateSucceeded
	}
	if !Published(body.Settings.Events, v.Event.State) {
		v.Event = schemas.Event{}
	}
	return v
}
