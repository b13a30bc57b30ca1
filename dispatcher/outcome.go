package dispatcher

import (
	"context"
	"errors"
	"time"

	"go.uber.org/zap"

	"github.com/notyet/notyet/callback"
	"github.com/notyet/notyet/internal/faultpoint"
	"github.com/notyet/notyet/internal/kafka"
	"github.com/notyet/notyet/internal/sendlog"
	"github.com/notyet/notyet/schemas"
	"github.com/notyet/notyet/store"
	"github.com/notyet/notyet/task"
)

// outcome is what came of sending a task.
type outcome struct {
	task      *claimedTask
	at        int64
	latest    int64 // no later than this, whatever the clock will turn out to be
	partition int32
	offset    int64
	err       error
	known     bool // from the send log: it is noted there already
	alone     bool // it was sent by itself: an error is about nothing else
	again     bool // it was refused, but its target may take it in a moment
}

// final says that the target refused the task for good.
func (o outcome) final() bool {
	if call, ok := errors.AsType[*callError](o.err); ok {
		return call.Verdict == callback.Dead
	}
	return kafka.Permanent(o.err) && !o.again
}

// note writes the outcomes at hand to the send log and decides what follows from each.
func (s *settler) note(ctx context.Context) {
	s.logOutcomes(ctx)
	if ctx.Err() != nil {
		return
	}
	outcomes := s.inbox.takeLogged()
	if len(outcomes) == 0 {
		return
	}
	var tell []outcome
	s.flight.mu.Lock()
	for _, o := range outcomes {
		if s.conclude(ctx, o) {
			tell = append(tell, o)
		}
	}
	s.flight.mu.Unlock()
	for _, o := range tell {
		s.announcer.announce(o.task, o.at)
	}
}

// logOutcomes writes the outcomes at hand to the send log. While a settlement waits for the database, and when the dispatcher ends, that is
// all that can be done with them: a process that begins again here does not send these tasks once more.
func (s *settler) logOutcomes(ctx context.Context) {
	outcomes := s.inbox.outcomesToLog()
	if len(outcomes) == 0 {
		return
	}
	entries := make([]sendlog.Outcome, 0, len(outcomes))
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
	s.until(ctx, "noting outcomes in the send log", func(ctx context.Context) error {
		if err := faultpoint.At(faultpoint.DispatcherAcknowledged); err != nil {
			return err
		}
		return s.sent.AppendOutcomes(ctx, entries)
	})
	if ctx.Err() == nil {
		s.inbox.logged(len(outcomes))
	}
}

// lastOutcomes is for when the loops have ended and the producers are closed.
func (s *settler) lastOutcomes() {
	ctx, cancel := context.WithTimeout(context.Background(), time.Second)
	defer cancel()
	s.logOutcomes(ctx)
}

// conclude decides what follows from an outcome; true means that its last events are to be published before it counts. inFlight.mu is held.
func (s *settler) conclude(ctx context.Context, o outcome) bool {
	t := o.task
	if t.status == leaving || t.status == left {
		s.answeredLate(o)
		return false
	}
	if t.slot.abandoned {
		return false
	}
	call, isCall := errors.AsType[*callError](o.err)
	switch {
	case isCall:
		s.callFailed(t, o, call)
	case o.err != nil && kafka.Permanent(o.err) && kafka.MaybeCollateral(o.err) && !o.alone:
		s.sender.suspect(ctx, t)
	case o.err != nil && kafka.Permanent(o.err) && !o.again:
		s.log.Info("a task cannot be delivered", zap.String("topic", t.topic), zap.String("id", t.id), zap.Error(o.err))
		s.flight.deadLetterLocked(t, schemas.KindUndeliverable, task.RefusedByKafka(o.err.Error()))
	case o.err != nil:
		s.metrics.retries.Inc()
		s.log.Debug("the producer gave a task back", zap.String("topic", t.topic), zap.String("id", t.id), zap.Error(o.err))
		s.sender.sendLater(t, o.err)
	case t.settings.Ack == schemas.AckReport:
		s.metrics.delivered.Inc()
		s.flight.leave(t, awaitReport(t, o))
	case task.Published(t.settings.Events, schemas.StateSucceeded):
		s.metrics.delivered.Inc()
		s.flight.unstage(t)
		t.status = announcing
		return true
	default:
		s.metrics.delivered.Inc()
		s.flight.unstage(t)
		t.status = settled
	}
	return false
}

func awaitReport(t *claimedTask, o outcome) transition {
	return transition{
		Transition: store.Transition{State: task.StateReport, Pos: max(o.at, o.latest) + t.settings.AckTimeout.Milliseconds(), Attempt: t.attempt + 1, Lane: t.lane.In(task.ClassRetried)},
		events:     []schemas.Event{{State: schemas.StateDispatched, Attempt: t.attempt + 1, Lateness: max(o.at-t.at, 0)}},
	}
}

// answeredLate takes the answer about a task that has been set aside meanwhile. inFlight.mu is held.
func (s *settler) answeredLate(o outcome) {
	t := o.task
	if s.flight.stuck[t.seq] != t {
		return
	}
	l := s.flight.slots[t.slot.number]
	if l == nil {
		delete(s.flight.stuck, t.seq)
		return
	}
	t.answered = true // it stays known as stuck until its end is durable
	late := &claimedTask{slot: l, seq: t.seq, at: t.at, lane: t.lane, content: t.content}
	call, isCall := errors.AsType[*callError](o.err)
	switch {
	case isCall:
		s.callFailed(late, o, call)
	case o.err == nil && t.settings.Ack == schemas.AckReport:
		s.flight.leave(late, awaitReport(late, o))
	case o.err == nil:
		s.metrics.delivered.Inc()
		s.leaveUnannounced(late, o.at)
	case kafka.Permanent(o.err) && !o.again && (o.alone || !kafka.MaybeCollateral(o.err)):
		s.flight.deadLetterLocked(late, schemas.KindUndeliverable, task.RefusedByKafka(o.err.Error()))
	default:
		delete(s.flight.stuck, t.seq) // it was not sent: its later place stands
	}
}

// leaveUnannounced stores the end of a delivered task that has left its place with its events, which are published from there. inFlight.mu is held.
func (s *settler) leaveUnannounced(t *claimedTask, at int64) {
	if !t.slot.abandoned {
		s.flight.leave(t, transition{Transition: store.Transition{State: task.StateSucceeded, Attempt: t.attempt + 1, Lane: t.lane}, events: deliveredEvents(t, at)})
	}
}
