package task

import (
	"fmt"
	"time"

	"github.com/notyet/notyet/internal/slots"
	"github.com/notyet/notyet/schemas"
)

// Decide is the whole state machine of callers' and consumers' changes to a task. It depends only
// on the task (nil: none is known), its phase, the change and the time in Unix ms; only the jitter
// of a backoff is random. The store places the result in its slot's line.
func Decide(cur *Task, ph Phase, c Change, spread slots.Spread, now int64) Verdict {
	if cur != nil && !c.about(cur.Topic, cur.ID) {
		return collides(cur, c)
	}
	switch {
	case c.Unread != "":
		return unread(cur, c.Unread, now)
	case c.Report != nil:
		return report(cur, ph, *c.Report, spread, now)
	}
	r := c.Request
	v := Verdict{Next: cur}
	if cur != nil && r.Version >= 0 && (r.Version < cur.Version || r.Version == cur.Version && cur.State.versioned() && r.Op == schemas.OpSchedule) {
		how := "below the known version"
		if r.Version == cur.Version {
			how = "not above the cancelled or stopped version"
		}
		return v.answer(r, schemas.StateStale, cur.Due, fmt.Sprintf("notyet-version %d is %s %d", r.Version, how, cur.Version))
	}
	if c.Again && ph == InFlight && cur.State == StateLine && r.Op != schemas.OpSchedule {
		// The claim may have been given back before: the owner gives the task back, or delivers it.
		v.Wait = true
		return v
	}
	switch r.Op {
	case schemas.OpSchedule:
		return schedule(cur, ph, c, spread)
	case schemas.OpCancel, schemas.OpStop:
		return cancel(cur, ph, c, now)
	case schemas.OpFire:
		return fire(cur, ph, c, spread, now)
	}
	return v.reject(c, "notyet-op", r.Op.String(), "is not supported by this version")
}

// Fresh returns the task that a request makes where none is known. nil: it makes none, or its
// content depends on others.
func Fresh(seq int64, r *schemas.Request) *Task {
	if r.Op != schemas.OpSchedule || r.Settings.IfExists == schemas.Merge {
		return nil
	}
	return schedule(nil, Ended, Change{Seq: seq, Request: r}, slots.Even(1)).Next
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
		// Dropping the request would lose it. Beside the delivery, the older one could arrive last.
		v.Wait = true
		return v
	}
	if cur != nil && ph == Pending && settings.IfExists == schemas.Keep {
		return v.answer(r, schemas.StateKept, cur.Due, "")
	}
	if c.Beyond != "" && (cur == nil || ph != Pending) {
		return v.reject(c, "quota", c.Beyond, c.noRoom())
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

// cancel decides a cancel, or a stop, which also ends a wait for a report or a retry.
func cancel(cur *Task, ph Phase, c Change, now int64) Verdict {
	r, v := c.Request, Verdict{Next: cur}
	stop, ended := r.Op == schemas.OpStop, schemas.StateCancelled
	switch {
	case cur == nil && r.Version < 0:
		return v.answer(r, schemas.StateNotFound, 0, c.unknown("no task"))
	case cur == nil:
		v.Next = &Task{Seq: c.Seq, Created: r.Accepted, Topic: r.Topic, ID: r.ID}
	case ph == Pending:
		next := *cur
		v.Next = &next
	case ph == Ended && (cur.State.Cancelled() || stop && cur.State.Stopped()):
		if cur.State.Stopped() {
			ended = schemas.StateStopped
		}
		if r.Version < 0 || r.Version == cur.Version && cur.State.versioned() {
			return v.answer(r, ended, cur.Due, "").after(cur.Attempt)
		}
		next := *cur
		v.Next = &next
	case stop && cur.waits(ph):
		next := *cur
		v.Next, ended = &next, schemas.StateStopped
	case stop && ph != Ended, ph == Unsure && cur.State == StateLine:
		v.Wait = true // its owner has it, or it can be cancelled: that is known in a moment, or with the outcome of its delivery
		return v
	case ph != Ended:
		return v.tooLate(r, cur, ph)
	default:
		return v.answer(r, schemas.StateTooLate, cur.Due, endedHow(cur))
	}
	v.Next.Slot, v.Next.Pos, v.Next.Body = OutOfLine, now, nil
	plain, versioned := StateCancelled, StateTombstone
	if ended == schemas.StateStopped {
		plain, versioned = StateStopped, StateHalted
	}
	v.Next.State = plain
	if r.Version >= 0 {
		v.Next.State, v.Next.Version = versioned, r.Version
	}
	return v.answer(r, ended, v.Next.Due, "").after(v.Next.Attempt)
}

func fire(cur *Task, ph Phase, c Change, spread slots.Spread, now int64) Verdict {
	r, v := c.Request, Verdict{Next: cur}
	switch {
	case cur == nil || cur.State.Cancelled():
		return v.answer(r, schemas.StateNotFound, 0, c.unknown("no pending task"))
	case ph == Unsure && cur.State != StateReport:
		v.Wait = true
		return v
	case ph == Ended:
		return v.answer(r, schemas.StateTooLate, cur.Due, endedHow(cur))
	case ph != Pending && (cur.State == StateReport || !cur.waits(ph)):
		return v.tooLate(r, cur, ph)
	}
	next := *cur
	next.Pos, next.Slot = now, next.line(spread)
	if ph == Pending {
		next.Due = now
	}
	if r.Version >= 0 {
		next.Version = r.Version
	}
	v.Next = &next
	return v.answer(r, schemas.StateFired, next.Due, "")
}

// waits tells whether a task waits for a report or a retry, and nothing of it is under way.
func (t *Task) waits(ph Phase) bool { return ph == Between && (t.State == StateReport || t.Idle) }

// AtRest: the task has not ended, and nothing of it is under way. So it can go to another database.
func (t *Task) AtRest(ph Phase) bool { return ph == Pending || t.waits(ph) }

// tooLate promises the caller that the task is delivered, or dies. The owner may yet give it back
// unsent, so the promise must be kept with the task: see Verdict.ToldTooLate.
func (v Verdict) tooLate(r *schemas.Request, cur *Task, ph Phase) Verdict {
	v.ToldTooLate = cur.State == StateLine
	reason := cur.WaitsFor(ph)
	if r.Op == schemas.OpCancel {
		reason += "; send " + schemas.HeaderOp + " stop to end its attempts"
	}
	return v.answer(r, schemas.StateTooLate, cur.Due, reason)
}

// Awaits says why the first waiting request of a task waits.
func (t *Task) Awaits(ph Phase, op schemas.Op) string {
	switch {
	case ph == Ended || ph == Pending:
		return "a scanner, which decides it in a moment"
	case !t.waits(ph):
		return "the outcome of the task's delivery"
	case op == schemas.OpStop:
		return "a scanner, which decides it in a moment"
	}
	return "the end of the task's attempts: " + t.WaitsFor(ph)
}

// WaitsFor says what happens next to a task that has not ended.
func (t *Task) WaitsFor(ph Phase) string {
	until := time.UnixMilli(HeldSince(t.Pos)).UTC().Format(time.RFC3339Nano)
	switch {
	case ph == Pending:
		return "the task is pending"
	case t.State == StateReport:
		return fmt.Sprintf("the task waits for a report on attempt %d until %s", t.Attempt, until)
	case t.waits(ph) && IsHeld(t.Pos):
		return fmt.Sprintf("the task waits for attempt %d, held since %s by its target's pause or limit", t.Attempt+1, until)
	case t.waits(ph):
		return fmt.Sprintf("the task waits for attempt %d until %s", t.Attempt+1, until)
	}
	return "the task is being delivered"
}

func endedHow(t *Task) string {
	switch {
	case t.State == StateDead:
		return "the task is dead: its dead letter or its last event says why"
	case t.State.Stopped():
		return fmt.Sprintf("the task was stopped after attempt %d", t.Attempt)
	}
	return "the task has been delivered"
}

func (v Verdict) after(attempts int) Verdict {
	if attempts > 0 {
		v.Event.Attempt, v.Event.Lateness = attempts, schemas.LatenessUnknown
	}
	return v
}

// answer adds the event about r, if the caller wants it. A cancel, stop or fire is always answered.
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

func (c Change) noRoom() string {
	if c.Beyond == QuotaUnknownTargets {
		return fmt.Sprintf("the target topic %q does not exist, and the intake has no room for one more such name: create the topic or correct its name, and send it again", c.Request.Topic)
	}
	return "the intake has no room for one more task: send it again later, or ask the operator to raise the quota"
}

// unknown is the reason of not_found.
func (c Change) unknown(what string) string {
	what += " of this topic and id is known"
	if c.Unordered {
		what += ": its schedule may follow, because this intake has requests in other partitions than Kafka's default partitioner has for their keys; give all clients that one (librdkafka's: murmur2_random)"
	}
	return what
}

// about reports whether a change is about the task or the timer of that topic and id.
func (c Change) about(topic, id string) bool {
	if c.Report != nil {
		return c.Report.Topic == topic && c.Report.ID == id
	}
	return c.Request.Topic == topic && c.Request.ID == id
}

// collides rejects a request with another task's identity: see Ident. A report then changes
// nothing.
func collides(cur *Task, c Change) Verdict {
	v := Verdict{Next: cur}
	if c.Report != nil {
		return v
	}
	return v.reject(c, "notyet-id", c.Request.ID, collision)
}

const collision = "another id, maybe of another topic, has the same hash: use another one"

// TooMany rejects a request because too many wait for its task already.
func TooMany(c Change, cur *Task) Verdict {
	problem := fmt.Sprintf("requests wait for this id until its delivery has ended, and at most %d of %d bytes in all may: send fewer, use other ids, or let its attempts end", schemas.MaxWaiting, schemas.MaxWaitingBytes)
	return Verdict{Next: cur}.reject(c, "notyet-id", c.Request.ID, problem)
}
