package task

import (
	"github.com/notyet/notyet/internal/slots"
	"github.com/notyet/notyet/schemas"
)

// report applies a consumer's report on an attempt. A report that is late, repeated or about
// another task changes nothing, except that a late ok counts.
//
// A report with its delivery's name also proves the delivery. The caller has checked that the task
// is the same. The dispatcher may still wait for Kafka's answer, or have set the task aside. An ok
// with such a proof ends a task sent once, though its owner has it: the owner finds that the task
// has left its place. Where the event of the delivery is published too, the ok waits for that
// event.
func report(cur *Task, ph Phase, rep schemas.Report, spread slots.Spread, now int64) Verdict {
	v := Verdict{Next: cur}
	proven := rep.Delivery != ""
	if cur == nil || ph == Ended || ph == Pending && !proven {
		return v
	}
	body, err := schemas.DecodeBody(cur.Body)
	if err != nil || body.Settings.Ack != schemas.AckReport {
		return v
	}
	unanswered := proven && cur.State != StateReport && rep.Attempt == cur.Attempt+1
	ends := unanswered && rep.Status == schemas.StatusOK && !Published(body.Settings.Events, schemas.StateDispatched)
	if ph == Unsure || ph == InFlight || ph == SentOnce && !ends {
		v.Wait = rep.Attempt <= cur.Attempt+1
		return v
	}
	next := *cur
	if unanswered {
		next.Attempt = rep.Attempt
	}
	late := !unanswered && (rep.Attempt < cur.Attempt || cur.State != StateReport)
	if rep.Attempt > next.Attempt || rep.Attempt < 1 || late && rep.Status != schemas.StatusOK {
		return v
	}
	v.Next = &next
	snoozed := rep.Status == schemas.StatusSnooze && next.Snoozed < schemas.MaxSnoozes
	if snoozed {
		next.Snoozed++
	}
	v.Event = schemas.Event{Topic: cur.Topic, ID: cur.ID, Due: cur.Due, Attempt: rep.Attempt, Lateness: schemas.LatenessUnknown, Reason: rep.Error}
	switch {
	case rep.Status == schemas.StatusOK:
		next.Slot, next.Pos, next.State = OutOfLine, now, StateSucceeded
		v.Event.State = schemas.StateSucceeded
	case rep.Status == schemas.StatusFail:
		v.die(&next, "the consumer reported a permanent failure: "+rep.Error, now)
	case !snoozed && next.Counted() >= body.Settings.MaxAttempts:
		v.die(&next, Exhausted(next.Counted(), rep.Error), now)
	default:
		wait := body.Settings.Pause(next.Attempt, next.Snoozed, rep.RetryAfter)
		next.State, next.Idle, next.Class = StateRetry, true, ClassRetried
		next.Pos = now + schemas.CeilMillis(wait)
		next.Slot = next.line(spread)
		next.Failures = Failed(cur.Failures, NewNote(cur.Replay, rep.Attempt, now, rep.Error))
		v.Event.State = schemas.StateRetrying
	}
	if !Published(body.Settings.Events, v.Event.State) {
		v.Event = schemas.Event{}
	}
	return v
}

func (v *Verdict) die(t *Task, reason string, now int64) {
	v.Dead = NewDeadLetter(*t, schemas.KindDead, reason, now)
	t.Slot, t.Pos, t.State = OutOfLine, now, StateDead
	v.Event.State, v.Event.Kind, v.Event.Reason = schemas.StateDead, schemas.KindDead, reason
}
