package task

import (
	"fmt"

	"github.com/notyet/notyet/internal/slots"
	"github.com/notyet/notyet/schemas"
)

// Decide is the whole state machine of what callers and consumers can do to a task. It depends only
// on the task (nil: none is known), its phase, the change and the time in Unix ms; only the jitter
// of a backoff is random. The store places the result in its slot's line.
func Decide(cur *Task, ph Phase, c Change, spread slots.Spread, now int64) Verdict {
	if c.Report != nil {
		return report(cur, ph, *c.Report, spread, now)
	}
	r := c.Request
	v := Verdict{Next: cur}
	if cur != nil && r.Version >= 0 && (r.Version < cur.Version || r.Version == cur.Version && cur.State == StateTombstone && r.Op == schemas.OpSchedule) {
		how := "below the known version"
		if r.Version == cur.Version {
			how = "not above the cancelled version"
		}
		return v.answer(r, schemas.StateStale, cur.Due, fmt.Sprintf("notyet-version %d is %s %d", r.Version, how, cur.Version))
	}
	switch r.Op {
	case schemas.OpSchedule:
		return schedule(cur, ph, c, spread)
	case schemas.OpCancel:
		return cancel(cur, ph, c, now)
	case schemas.OpFire:
		return fire(cur, ph, c, spread, now)
	}
	return v.reject(c, "notyet-op", r.Op.String(), "is not supported by this version")
}

func schedule(cur *Task, ph Phase, c Change, spread slots.Spread) Verdict {
	r, v := c.Request, Verdict{Next: cur}
	settings := r.Settings
	if settings.IfExists == schemas.Once {
		if cur != nil && !cur.MadeByCancel() {
			return v.answer(r, schemas.StateKept, cur.Due, "")
		}
		settings.IfExists = schemas.Keep // as stored: the version before does not know once
	}
	if cur != nil && (ph == InFlight || ph == Between || ph == Unsure) {
		// Dropping the request would lose it. Storing it beside the delivery could let the older one
		// arrive last.
		v.Wait = true
		return v
	}
	if cur != nil && ph == Pending && settings.IfExists == schemas.Keep {
		return v.answer(r, schemas.StateKept, cur.Due, "")
	}
	if c.Beyond != "" && (cur == nil || ph != Pending) {
		return v.reject(c, "quota", c.Beyond, "the intake has no room for one more task: send it again later, or ask the operator to raise the quota")
	}
	next := &Task{Seq: c.Seq, Due: r.Due, Version: r.Version, Created: r.Accepted, Topic: r.Topic, ID: r.ID}
	value, state := r.Value, schemas.StateScheduled
	if cur != nil && next.Version < 0 {
		next.Version = cur.Version
	}
	if settings.IfExists == schemas.Merge {
		var old *schemas.Body
		if cur != nil && ph == Pending {
			body, err := schemas.DecodeBody(cur.Body)
			if err != nil {
				return v.reject(c, "stored body", cur.ID, err.Error())
			}
			old, state, next.Created = &body, schemas.StateMerged, cur.Created
		}
		v.Cost = mergeCost(old, settings.Merge, r.Value)
		merged, err := mergeValue(old, settings.Merge, r.Value, r.MaxValue)
		if err != nil {
			return v.reject(c, "value", fmt.Sprintf("%d bytes", len(r.Value)), err.Error()) // who may read reasons may not read values
		}
		value = merged
		if bound := next.Created + settings.MaxWait.Milliseconds(); settings.MaxWait > 0 && next.Due > bound {
			next.Due = bound
		}
	}
	next.Body = schemas.EncodeBody(nil, r.Key, value, r.Headers, settings)
	if c.Beyond == QuotaBytes && len(next.Body) > len(cur.Body) {
		return v.reject(c, "quota", c.Beyond, "the intake has no room for a larger task: send it again later, or ask the operator to raise the quota")
	}
	next.Slot = spread.Of(r.Topic, r.Key, r.ID)
	next.Pos = next.Due
	next.Class = ClassOf(settings.Priority)
	v.Next = next
	return v.answer(r, state, next.Due, "")
}

func cancel(cur *Task, ph Phase, c Change, now int64) Verdict {
	r, v := c.Request, Verdict{Next: cur}
	switch {
	case cur == nil && r.Version < 0:
		return v.answer(r, schemas.StateNotFound, 0, "no task of this topic and id is known")
	case cur == nil:
		v.Next = &Task{Seq: c.Seq, Created: r.Accepted, Topic: r.Topic, ID: r.ID}
	case ph == Pending:
		next := *cur
		v.Next = &next
	case ph == Ended && (cur.State == StateCancelled || cur.State == StateTombstone):
		if r.Version < 0 || r.Version == cur.Version && cur.State == StateTombstone {
			return v.answer(r, schemas.StateCancelled, cur.Due, "")
		}
		next := *cur
		v.Next = &next
	case ph == Unsure && cur.State == StateLine:
		v.Wait = true // its owner has it, or it can be cancelled: that is known in a moment
		return v
	case ph == InFlight || ph == Between || ph == Unsure:
		return v.tooLate(r, cur)
	default:
		return v.answer(r, schemas.StateTooLate, cur.Due, endedHow(cur))
	}
	v.Next.Slot, v.Next.Pos, v.Next.Body = OutOfLine, now, nil
	v.Next.State = StateCancelled
	if r.Version >= 0 {
		v.Next.State, v.Next.Version = StateTombstone, r.Version
	} else if cur == nil {
		v.Next.Version = -1
	}
	return v.answer(r, schemas.StateCancelled, v.Next.Due, "")
}

func fire(cur *Task, ph Phase, c Change, spread slots.Spread, now int64) Verdict {
	r, v := c.Request, Verdict{Next: cur}
	switch {
	case cur == nil || cur.State == StateCancelled || cur.State == StateTombstone:
		return v.answer(r, schemas.StateNotFound, 0, "no pending task of this topic and id is known")
	case ph == Unsure && cur.State == StateLine:
		v.Wait = true
		return v
	case ph == InFlight || ph == Between || ph == Unsure:
		return v.tooLate(r, cur)
	case ph == Ended:
		return v.answer(r, schemas.StateTooLate, cur.Due, endedHow(cur))
	}
	next := *cur
	next.Due, next.Pos, next.Slot = now, now, next.line(spread)
	if r.Version >= 0 {
		next.Version = r.Version
	}
	v.Next = &next
	return v.answer(r, schemas.StateFired, next.Due, "")
}

// tooLate promises the caller that the task is delivered, or dies. Its owner may yet give it back
// unsent, so the promise must be kept with the task: see Verdict.ToldTooLate.
func (v Verdict) tooLate(r *schemas.Request, cur *Task) Verdict {
	v.ToldTooLate = cur.State == StateLine
	return v.answer(r, schemas.StateTooLate, cur.Due, "the task is being delivered")
}

func endedHow(t *Task) string {
	if t.State == StateDead {
		return "the task is dead: its dead letter or its last event says why"
	}
	return "the task has been delivered"
}

// answer adds the event that answers r, if the caller wants it. A cancel or fire is always answered.
func (v Verdict) answer(r *schemas.Request, state schemas.State, due int64, reason string) Verdict {
	if r.Op != schemas.OpSchedule || Published(r.Settings.Events, state) {
		v.Event = schemas.Event{Topic: r.Topic, ID: r.ID, State: state, Due: due, Reason: reason}
	}
	return v
}

func (v Verdict) reject(c Change, what, value, problem string) Verdict {
	r := c.Request
	reason := fmt.Sprintf("%s %q: %s", what, value, problem)
	v.Event = schemas.Event{Topic: r.Topic, ID: r.ID, State: schemas.StateRejected, Due: r.Due, Kind: schemas.KindRejected, Reason: reason}
	v.Dead = &DeadLetter{Seq: c.Seq, Kind: schemas.KindRejected, Topic: r.Topic, TaskID: r.ID, Due: r.Due, Reason: reason, Body: r.EncodeRejected()}
	return v
}

// TooMany rejects a request because too many wait for its task already.
func TooMany(c Change, cur *Task) Verdict {
	problem := fmt.Sprintf("requests wait for this id until its delivery has ended, and at most %d of %d bytes in all may: send fewer, use other ids, or let its attempts end", schemas.MaxWaiting, schemas.MaxWaitingBytes)
	return Verdict{Next: cur}.reject(c, "notyet-id", c.Request.ID, problem)
}
