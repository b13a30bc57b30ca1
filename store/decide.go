package store

import (
	"fmt"
	"math/rand/v2"
	"time"

	"github.com/notyet/notyet/internal/faultpoint"
	"github.com/notyet/notyet/internal/slots"
	"github.com/notyet/notyet/schemas"
	"github.com/notyet/notyet/task"
)

// Change is one intake record: a request, a report, or one that was rejected before it came here.
type Change struct {
	Seq      int64 // intake source << 48 | intake offset
	Request  *schemas.Request
	Report   *schemas.Report
	Rejected *DeadLetter
}

// verdict is what a change makes of the task that has its identity.
type verdict struct {
	next  *task.Task    // the task afterwards: the pointer that came in when nothing changed
	event schemas.Event // State "": nothing to tell
	dead  *DeadLetter
	wait  bool // the task is being delivered: decide when its outcome is known
	cost  int  // of mergeBudget
	taken bool // a caller is told that it is too late: the task must not become pending again
}

// decide is the whole state machine of what callers and consumers can do to a task. It is a pure function of the task
// (nil: none is known), its phase and the change; placing the result in its slot's line is place's work.
func decide(cur *task.Task, ph task.Phase, c Change, slotCount int, now int64) verdict {
	if c.Report != nil {
		return report(cur, ph, *c.Report, now)
	}
	r := c.Request
	v := verdict{next: cur}
	if cur != nil && r.Version >= 0 && (r.Version < cur.Version || r.Version == cur.Version && cur.State == task.StateTombstone && r.Op == schemas.OpSchedule) {
		how := "below the known version"
		if r.Version == cur.Version {
			how = "not above the cancelled version"
		}
		return v.tell(r, schemas.StateStale, cur.Due, fmt.Sprintf("notyet-version %d is %s %d", r.Version, how, cur.Version))
	}
	switch r.Op {
	case schemas.OpSchedule:
		return schedule(cur, ph, c, slotCount)
	case schemas.OpCancel:
		return cancel(cur, ph, c, now)
	case schemas.OpFire:
		return fire(cur, ph, c, now)
	}
	return v.reject(c, "notyet-op", r.Op.String(), "is not supported by this version")
}

func schedule(cur *task.Task, ph task.Phase, c Change, slotCount int) verdict {
	r, v := c.Request, verdict{next: cur}
	settings := r.Settings
	if settings.IfExists == schemas.Once {
		if cur != nil && !cur.MadeByCancel() {
			return v.tell(r, schemas.StateKept, cur.Due, "")
		}
		settings.IfExists = schemas.Keep // as it is stored: the version before does not know once
	}
	if cur != nil && (ph == task.InFlight || ph == task.Waiting) {
		// Dropping it would lose a request, storing it beside the delivery could let the older one arrive last.
		v.wait = true
		return v
	}
	if cur != nil && ph == task.Pending && settings.IfExists == schemas.Keep {
		return v.tell(r, schemas.StateKept, cur.Due, "")
	}
	next := &task.Task{Seq: c.Seq, Due: r.Due, Version: r.Version, Created: r.Accepted, Topic: r.Topic, ID: r.ID}
	value, state := r.Value, schemas.StateScheduled
	if cur != nil && next.Version < 0 {
		next.Version = cur.Version
	}
	if settings.IfExists == schemas.Merge {
		var old *schemas.Body
		if cur != nil && ph == task.Pending {
			body, err := schemas.DecodeBody(cur.Body)
			if err != nil {
				return v.reject(c, "stored body", cur.ID, err.Error())
			}
			old, state, next.Created = &body, schemas.StateMerged, cur.Created
		}
		v.cost = mergeCost(old, settings.Merge, r.Value)
		merged, err := mergeValue(old, settings.Merge, r.Value, r.MaxValue)
		if err != nil {
			return v.reject(c, "value", cut(r.Value), err.Error())
		}
		value = merged
		if bound := next.Created + settings.MaxWait.Milliseconds(); settings.MaxWait > 0 && next.Due > bound {
			next.Due = bound
		}
	}
	next.Body = schemas.EncodeBody(nil, r.Key, value, r.Headers, settings)
	next.Slot = slots.Of(r.Topic, r.Key, r.ID, slotCount)
	next.Pos = next.Due
	next.Lane = task.LaneOf(r.Topic, task.ClassOf(settings.Priority))
	v.next = next
	return v.tell(r, state, next.Due, "")
}

func cancel(cur *task.Task, ph task.Phase, c Change, now int64) verdict {
	r, v := c.Request, verdict{next: cur}
	switch {
	case cur == nil && r.Version < 0:
		return v.tell(r, schemas.StateNotFound, 0, "no task of this topic and id is known")
	case cur == nil:
		v.next = &task.Task{Seq: c.Seq, Created: r.Accepted, Topic: r.Topic, ID: r.ID}
	case ph == task.Pending:
		next := *cur
		v.next = &next
	case ph == task.Ended && (cur.State == task.StateCancelled || cur.State == task.StateTombstone):
		if r.Version < 0 || r.Version == cur.Version && cur.State == task.StateTombstone {
			return v.tell(r, schemas.StateCancelled, cur.Due, "")
		}
		next := *cur
		v.next = &next
	case ph == task.InFlight || ph == task.Waiting:
		return v.tooLate(r, cur)
	default:
		return v.tell(r, schemas.StateTooLate, cur.Due, endedHow(cur))
	}
	v.next.Slot, v.next.Pos, v.next.Body = task.OutOfLine, now, nil
	v.next.State = task.StateCancelled
	if r.Version >= 0 {
		v.next.State, v.next.Version = task.StateTombstone, r.Version
	} else if cur == nil {
		v.next.Version = -1
	}
	return v.tell(r, schemas.StateCancelled, v.next.Due, "")
}

func fire(cur *task.Task, ph task.Phase, c Change, now int64) verdict {
	r, v := c.Request, verdict{next: cur}
	switch {
	case cur == nil || cur.State == task.StateCancelled || cur.State == task.StateTombstone:
		return v.tell(r, schemas.StateNotFound, 0, "no pending task of this topic and id is known")
	case ph == task.InFlight || ph == task.Waiting:
		return v.tooLate(r, cur)
	case ph == task.Ended:
		return v.tell(r, schemas.StateTooLate, cur.Due, endedHow(cur))
	}
	next := *cur
	next.Due, next.Pos = now, now
	if r.Version >= 0 {
		next.Version = r.Version
	}
	v.next = &next
	return v.tell(r, schemas.StateFired, next.Due, "")
}

// tooLate promises that the task is delivered, or dies: though its owner may yet give it back unsent.
func (v verdict) tooLate(r *schemas.Request, cur *task.Task) verdict {
	v.taken = cur.State == task.StateLine
	return v.tell(r, schemas.StateTooLate, cur.Due, "the task is being delivered")
}

func endedHow(t *task.Task) string {
	if t.State == task.StateDead {
		return "the task is dead: see its dead letter"
	}
	return "the task has been delivered"
}

// report takes a consumer's word on an attempt. Late, doubled and foreign ones change nothing, but that a late ok counts. One that
// names its delivery, which has been found to be of this task, also proves that it was made: the dispatcher may have had no answer
// from Kafka yet, and have set the task aside meanwhile.
func report(cur *task.Task, ph task.Phase, rep schemas.Report, now int64) verdict {
	v := verdict{next: cur}
	proven := rep.Delivery != "" && !faultpoint.Without(faultpoint.ReportOfDelivery)
	if cur == nil || ph == task.Ended || ph == task.Pending && !proven {
		return v
	}
	body, err := schemas.DecodeBody(cur.Body)
	if err != nil || body.Settings.Ack != schemas.AckReport {
		return v
	}
	if ph == task.InFlight {
		v.wait = rep.Attempt <= cur.Attempt+1
		return v
	}
	next := *cur
	unanswered := proven && cur.State != task.StateReport && rep.Attempt == cur.Attempt+1
	if unanswered {
		next.Attempt = rep.Attempt
	}
	late := !unanswered && (rep.Attempt < cur.Attempt || cur.State != task.StateReport)
	if rep.Attempt > next.Attempt || rep.Attempt < 1 || late && rep.Status != schemas.StatusOK {
		return v
	}
	v.next = &next
	v.event = schemas.Event{Topic: cur.Topic, ID: cur.ID, Due: cur.Due, Attempt: rep.Attempt, Reason: rep.Error}
	switch {
	case rep.Status == schemas.StatusOK:
		next.Slot, next.Pos, next.State = task.OutOfLine, now, task.StateSucceeded
		v.event.State = schemas.StateSucceeded
	case rep.Status == schemas.StatusFail:
		v.die(&next, "the consumer reported a permanent failure: "+rep.Error, now)
	case next.Attempt >= body.Settings.MaxAttempts:
		v.die(&next, fmt.Sprintf("attempts exhausted (%d); the last: %s", next.Attempt, rep.Error), now)
	default:
		wait := Backoff(body.Settings.Backoff, next.Attempt)
		if rep.RetryAfter >= 0 {
			wait = rep.RetryAfter
		}
		next.State, next.Pos, next.Lane = task.StateRetry, now+ceilMillis(wait), task.LaneOf(cur.Topic, task.ClassRetried)
		v.event.State = schemas.StateRetrying
	}
	if !Tells(body.Settings.Events, v.event.State) {
		v.event = schemas.Event{}
	}
	return v
}

func (v *verdict) die(t *task.Task, reason string, now int64) {
	v.dead = deadTask(*t, KindDead, reason, now)
	t.Slot, t.Pos, t.State = task.OutOfLine, now, task.StateDead
	v.event.State, v.event.Kind, v.event.Reason = schemas.StateDead, KindDead, reason
}

// tell adds the answer to r, where the caller wants to hear it: answers to cancel and fire are always sent.
func (v verdict) tell(r *schemas.Request, state schemas.State, due int64, reason string) verdict {
	if r.Op != schemas.OpSchedule || Tells(r.Settings.Events, state) {
		v.event = schemas.Event{Topic: r.Topic, ID: r.ID, State: state, Due: due, Reason: reason}
	}
	return v
}

func (v verdict) reject(c Change, what, value, problem string) verdict {
	r := c.Request
	reason := fmt.Sprintf("%s %q: %s", what, value, problem)
	v.event = schemas.Event{Topic: r.Topic, ID: r.ID, State: schemas.StateRejected, Due: r.Due, Kind: KindRejected, Reason: reason}
	v.dead = &DeadLetter{Seq: c.Seq, Kind: KindRejected, Topic: r.Topic, TaskID: r.ID, Due: r.Due, Reason: reason, Body: r.EncodeRejected()}
	return v
}

// tooMany is the verdict on a request for which there is no room among those that wait.
func tooMany(c Change, cur *task.Task) verdict {
	problem := fmt.Sprintf("requests wait for this id until its delivery has ended, and at most %d of %d bytes in all may: send fewer, use other ids, or let its attempts end", schemas.MaxWaiting, schemas.MaxWaitingBytes)
	return verdict{next: cur}.reject(c, "notyet-id", c.Request.ID, problem)
}

// Tells says whether a task with this setting has the state told on the results topic.
func Tells(e schemas.Events, state schemas.State) bool {
	switch {
	case state == schemas.StateRejected, e == schemas.EventsAll:
		return true
	case e == schemas.EventsFinal:
		return state.Final()
	}
	return false
}

// Backoff is the pause after the n-th attempt. Exponential ones are jittered over their upper half, so that tasks that
// failed together do not come back together.
func Backoff(b schemas.Backoff, attempt int) time.Duration {
	if !b.Exponential {
		return b.First
	}
	d := b.First
	for i := 1; i < attempt && d < b.Max; i++ {
		d += min(d, b.Max-d) // twice as long, or the longest: doubled, a pause of centuries would be negative
	}
	if half := int64(d / 2); half > 0 {
		d -= time.Duration(rand.Int64N(half))
	}
	return d
}

// ceilMillis rounds up: rounding may only ever be late.
func ceilMillis(d time.Duration) int64 { return int64((d + time.Millisecond - 1) / time.Millisecond) }

func cut(b []byte) string {
	if len(b) > 64 {
		b = b[:64]
	}
	return string(b)
}
