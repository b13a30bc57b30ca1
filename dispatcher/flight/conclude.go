package flight

import (
	"errors"
	"fmt"
	"time"

	"go.uber.org/zap"

	"github.com/notyet/notyet/callback"
	"github.com/notyet/notyet/internal/kafka"
	"github.com/notyet/notyet/internal/sendlog"
	"github.com/notyet/notyet/schemas"
	"github.com/notyet/notyet/store/line"
	"github.com/notyet/notyet/task"
)

// outcome is what came of sending a task.
type outcome struct {
	task      *Task
	at        int64
	latest    int64 // no later than this, whatever the clock will turn out to be: of a whole round
	partition int32
	offset    int64
	err       error
	known     bool // from the send log: it is noted there already
	alone     bool // it was sent by itself: an error is about nothing else
	again     bool // it was refused, but its target may take it in a moment
}

// final says that the target refused the task for good.
func (o outcome) final() bool {
	if call, ok := errors.AsType[*CallError](o.err); ok {
		return call.Verdict == callback.Dead
	}
	return kafka.Permanent(o.err) && !o.again
}

// OutcomesToLog returns what the send log is to know, and of how many outcomes; Noted takes their number once it knows.
func (fl *Flight) OutcomesToLog() (entries []sendlog.Outcome, n int) {
	outcomes := fl.inbox.outcomesToLog()
	if len(outcomes) == 0 {
		return nil, 0
	}
	entries = make([]sendlog.Outcome, 0, len(outcomes))
	for _, o := range outcomes {
		if o.known || o.err != nil && kafka.MaybeCollateral(o.err) && !o.alone {
			continue
		}
		e := sendlog.Outcome{Seq: o.task.seq, Attempt: o.task.sendNumber(), Acked: o.err == nil, Partition: o.partition, Offset: o.offset, At: o.at}
		if o.err != nil {
			e.Error, e.Refused = o.err.Error(), o.final()
		}
		entries = append(entries, e)
	}
	return entries, len(outcomes)
}

// Noted says that the first n outcomes are in the send log.
func (fl *Flight) Noted(n int) { fl.inbox.logged(n) }

// Conclude decides what follows from each outcome that is in the send log. The last events of the deliveries it returns are to be
// published. The suspects of the outlets it returns are to be sent, each by itself.
func (fl *Flight) Conclude() (announce []Delivery, isolate []*Outlet) {
	outcomes := fl.inbox.takeLogged()
	if len(outcomes) == 0 {
		return nil, nil
	}
	latest := fl.clock.Latest()
	fl.mu.Lock()
	defer fl.mu.Unlock()
	for _, o := range outcomes {
		o.latest = latest
		switch next, g := fl.conclude(o); {
		case next:
			announce = append(announce, fl.announces(o.task, o.at))
		case g != nil:
			isolate = append(isolate, g)
		}
	}
	return announce, isolate
}

// conclude decides what follows from an outcome. announce means that its last events are to be published before it counts; isolate, that
// the suspects of an outlet are to be sent.
func (fl *Flight) conclude(o outcome) (announce bool, isolate *Outlet) {
	t := o.task
	if t.status == leaving || t.status == left {
		fl.answeredLate(o)
		return false, nil
	}
	if t.slot.abandoned {
		return false, nil
	}
	call, isCall := errors.AsType[*CallError](o.err)
	switch {
	case isCall:
		fl.callFailed(t, o, call)
	case o.err != nil && kafka.Permanent(o.err) && kafka.MaybeCollateral(o.err) && !o.alone && kafka.NotSent(o.err):
		return false, fl.suspect(t)
	case o.err != nil && kafka.Permanent(o.err) && !o.again && (o.alone || !kafka.MaybeCollateral(o.err)):
		fl.log.Info("a task cannot be delivered", zap.String("topic", t.topic), zap.String("id", t.id), zap.Error(o.err))
		fl.deadLetter(t, schemas.KindUndeliverable, task.RefusedByKafka(o.err.Error()))
	case o.err != nil:
		fl.metrics.Retries.Inc()
		fl.log.Debug("the producer gave a task back", zap.String("topic", t.topic), zap.String("id", t.id), zap.Error(o.err))
		fl.sendLater(t, o.err)
	case t.settings.Ack == schemas.AckReport:
		fl.metrics.Delivered.Inc()
		fl.leave(t, awaitReport(t, o))
	case task.Published(t.settings.Events, schemas.StateSucceeded):
		fl.metrics.Delivered.Inc()
		fl.unstage(t)
		t.status = announcing
		return true, nil
	default:
		fl.metrics.Delivered.Inc()
		fl.unstage(t)
		t.status = settled
	}
	return false, nil
}

// sendLater puts off a task that a producer gave back. Unless it is certain that the record is not in its topic, nothing may happen
// to the task any more but that it is sent: it must not be cancelled, replaced or called expired.
func (fl *Flight) sendLater(t *Task, err error) {
	if !kafka.NotSent(err) {
		t.state = task.StateRetry
	}
	if g := fl.outlets.closing(t.outletKey, time.Now()); g != nil {
		fl.putOff(t, g)
		return
	}
	fl.postpone(t, fl.clock.Millis(), unsentPause)
}

// callFailed decides what follows from a request that was not delivered: another attempt, or a dead letter.
func (fl *Flight) callFailed(t *Task, o outcome, e *CallError) {
	made := t.attempt
	if e.Sent || e.Verdict == callback.Retry {
		made++
	}
	switch {
	case e.Verdict == callback.Dead:
		fl.log.Info("a callback cannot succeed", zap.String("topic", t.topic), zap.String("id", t.id), zap.Int("status", e.Status))
		fl.leave(t, fl.deadTransition(t, e.Kind, e.Reason).after(made))
	case made >= t.settings.MaxAttempts:
		fl.leave(t, fl.deadTransition(t, schemas.KindDead, task.Exhausted(made, e.Reason)).after(made))
	default:
		// One more: both times are cut to a millisecond, and the receiver counts from before its answer came.
		pause := (e.Pause(t.settings.Backoff.Pause(made)) + time.Millisecond - 1).Milliseconds()
		next := max(o.at, o.latest) + 1 + pause
		if t.tooLateFor(next) {
			reason := fmt.Sprintf("its next attempt would be later than notyet-max-lateness %v after its due time (%d made); the last: %s", t.settings.MaxLateness, made, e.Reason)
			fl.leave(t, fl.deadTransition(t, schemas.KindExpired, reason).after(made))
			return
		}
		fl.metrics.Retries.Inc()
		fl.leave(t, t.retry(next, made, e.Reason))
	}
}

// tooLateFor says that an attempt at an instant would deliver a task later than it may be delivered. One that waits for reports may have
// been delivered by an earlier attempt.
func (t *Task) tooLateFor(at int64) bool {
	bound := t.settings.MaxLateness.Milliseconds()
	return bound > 0 && at > t.due+bound && (t.attempt == 0 || t.settings.Ack != schemas.AckReport)
}

func awaitReport(t *Task, o outcome) Transition {
	return Transition{
		Transition: line.Transition{State: task.StateReport, Pos: max(o.at, o.latest) + t.settings.AckTimeout.Milliseconds(), Attempt: t.attempt + 1, Lane: t.lane.In(task.ClassRetried),
			Events: []schemas.Event{{State: schemas.StateDispatched, Attempt: t.attempt + 1, Lateness: max(o.at-t.at, 0)}}},
	}
}

// answeredLate takes the answer about a task that has been set aside meanwhile.
func (fl *Flight) answeredLate(o outcome) {
	t := o.task
	if fl.stuck[t.seq] != t {
		return
	}
	l := fl.slots[t.slot.number]
	if l == nil {
		delete(fl.stuck, t.seq)
		return
	}
	t.lateAnswer = true // it stays known as stuck until its end is durable
	away := l != t.slot // then another owner may have sent it too
	late := &Task{slot: l, seq: t.seq, at: t.at, lane: t.lane, doubt: t.doubt || away, content: t.content}
	call, isCall := errors.AsType[*CallError](o.err)
	switch {
	case isCall:
		fl.callFailed(late, o, call)
	case o.err == nil && t.settings.Ack == schemas.AckReport:
		fl.leave(late, awaitReport(late, o))
	case o.err == nil:
		fl.metrics.Delivered.Inc()
		fl.leaveUnannounced(late, o.at)
	case kafka.Permanent(o.err) && !o.again && (o.alone || !kafka.MaybeCollateral(o.err)):
		fl.deadLetter(late, schemas.KindUndeliverable, task.RefusedByKafka(o.err.Error()))
	default:
		delete(fl.stuck, t.seq) // its later place stands, from which it is sent again
	}
}

// leaveUnannounced stores the end of a delivered task that has left its place with its events, which are published from there.
func (fl *Flight) leaveUnannounced(t *Task, at int64) {
	if !t.slot.abandoned {
		fl.leave(t, Transition{Transition: line.Transition{State: task.StateSucceeded, Attempt: t.attempt + 1, Lane: t.lane, Events: deliveredEvents(t, at)}})
	}
}
