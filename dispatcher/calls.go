package dispatcher

import (
	"fmt"
	"time"

	"go.uber.org/zap"

	"github.com/notyet/notyet/callback"
	"github.com/notyet/notyet/internal/faultpoint"
	"github.com/notyet/notyet/internal/kafka"
	"github.com/notyet/notyet/schemas"
	"github.com/notyet/notyet/store"
	"github.com/notyet/notyet/task"
)

// A task whose target is an origin is sent as an HTTP request, by callback.Sender instead of the producer. It comes the same way: its
// intent is in the send log, it waits for room at its target, and its outcome goes to the settler. Other than a partition, an origin
// answers each request by itself, and an attempt that failed counts: the next one is due after the task's backoff.

// calls are the requests that are under way. The lock of those in flight guards them: the release loop adds, what ends a request removes.
type calls struct {
	sender   *callback.Sender // nil: this dispatcher makes no callbacks
	underWay map[*claimedTask]time.Time
}

func newCalls(sender *callback.Sender) *calls {
	return &calls{sender: sender, underWay: map[*claimedTask]time.Time{}}
}

// begin notes a request that is about to be made, with the room that was taken for it. inFlight.mu is held.
func (c *calls) begin(t *claimedTask) sendable {
	one := sendable{task: t, record: t.record, call: t.call, seat: t.with.seat}
	t.with.seat = nil
	c.underWay[t] = time.Now()
	return one
}

// leaveSeat gives back room at an origin that no task has used. inFlight.mu is held.
func (g *outlet) leaveSeat() {
	if g.seat != nil {
		g.seat.Leave()
		g.seat = nil
	}
}

// room says whether a task may be sent through its outlet. At an origin it takes the room for it. inFlight.mu is held.
func (s *sender) room(g *outlet, t *claimedTask) bool {
	switch {
	case !s.outlets.hasRoom(g, t):
		return false
	case !g.origin || g.seat != nil:
		return true
	}
	seat, absence := s.calls.sender.Enter(g.topic)
	if absence.Down {
		s.originDown(g, absence.Wait)
	}
	g.seat = seat
	return seat != nil
}

// originDown puts an origin's tasks off for as long as nothing is sent to it. The callback package says when to ask it, and logs it. inFlight.mu is held.
func (s *sender) originDown(g *outlet, pause time.Duration) {
	now := time.Now()
	if g.outage == nil {
		s.metrics.unresponsive.Inc()
		g.outage = newOutage(now)
		defer s.parking.postponeWaiting(g) // until it is asked again
	}
	g.outage.pause, g.outage.next, g.outage.probing = pause, now.Add(pause), false
}

// callError is what came of a request that was not delivered.
type callError struct{ callback.Outcome }

func (e *callError) Error() string { return e.Reason }

// called takes what came of a request, as answered does for a record.
func (s *sender) called(t *claimedTask, method string, o callback.Outcome) {
	if o.Verdict == callback.Interrupted {
		return // the dispatcher ends: its next owner sends the task again
	}
	var err error
	switch fault := faultpoint.At(faultpoint.DispatcherSent); {
	case fault != nil:
		err = fault
	case o.Verdict == callback.NotSent:
		err = fmt.Errorf("%w: %s", kafka.ErrNotSent, o.Reason)
	case o.Verdict != callback.Delivered:
		err = &callError{o}
	}
	now := s.clock.Now()
	t.trace.called(t, method, now, o)
	s.flight.mu.Lock()
	delete(s.calls.underWay, t)
	g := s.outlets.endSending(t)
	switch {
	case o.Down > 0:
		s.originDown(g, o.Down)
	case o.Status != 0:
		g.since = time.Now()
		g.answers++
		s.parking.respondsAgain(g)
	case g.outage != nil:
		g.outage.probing = false
	}
	s.concludes(outcome{task: t, at: now.UnixMilli(), latest: s.clock.Latest(), err: err, alone: true})
	s.outlets.forgetIdle(g)
	s.flight.mu.Unlock()
	if err == nil {
		s.observe(t.topic, now.Sub(time.UnixMilli(t.at)))
	}
	s.kicks.settle.now()
	s.kicks.release.now() // there is room again, perhaps for another origin
}

// slowCall is how long a request may hold up its slot. Behind it, what was delivered since would be in doubt if the dispatcher were killed,
// and a slot that is given away would wait.
const slowCall = time.Second

// setAsideSlow takes requests that have been under way for long out of their places, so that their slots go on. Each answer is still waited
// for: it is bounded by the request's own timeout. inFlight.mu is held.
func (s *sender) setAsideSlow() {
	for t, since := range s.calls.underWay {
		if t.status == sending && time.Since(since) >= min(slowCall, s.cfg.UnresponsiveAfter) && s.flight.stuck[t.seq] == nil && !t.slot.abandoned {
			s.setAsideSent(t)
		}
	}
}

// callFailed decides what follows from a request that was not delivered: another attempt, or a dead letter. inFlight.mu is held.
func (s *settler) callFailed(t *claimedTask, o outcome, e *callError) {
	made := t.attempt
	if e.Sent || e.Verdict == callback.Retry {
		made++
	}
	switch {
	case e.Verdict == callback.Dead:
		s.log.Info("a callback cannot succeed", zap.String("topic", t.topic), zap.String("id", t.id), zap.Int("status", e.Status))
		s.flight.leave(t, s.flight.deadTransition(t, e.Kind, e.Reason).after(made))
	case made >= t.settings.MaxAttempts:
		s.flight.leave(t, s.flight.deadTransition(t, schemas.KindDead, task.Exhausted(made, e.Reason)).after(made))
	default:
		// One more: both times are cut to a millisecond, and the receiver counts from before its answer came.
		pause := (e.Pause(t.settings.Backoff.Pause(made)) + time.Millisecond - 1).Milliseconds()
		next := max(o.at, o.latest) + 1 + pause
		if t.tooLateFor(next) {
			reason := fmt.Sprintf("its next attempt would be later than notyet-max-lateness %v after its due time (%d made); the last: %s", t.settings.MaxLateness, made, e.Reason)
			s.flight.leave(t, s.flight.deadTransition(t, schemas.KindExpired, reason).after(made))
			return
		}
		s.metrics.retries.Inc()
		s.flight.leave(t, transition{
			Transition: store.Transition{State: task.StateRetry, Pos: next, Attempt: made, Lane: t.lane.In(task.ClassRetried)},
			events:     []schemas.Event{{State: schemas.StateRetrying, Attempt: made, Lateness: schemas.LatenessUnknown, Reason: e.Reason}},
		})
	}
}

// tooLateFor says that an attempt at an instant would deliver a task later than it may be delivered. One that waits for reports may have
// been delivered by an earlier attempt.
func (t *claimedTask) tooLateFor(at int64) bool {
	bound := t.settings.MaxLateness.Milliseconds()
	return bound > 0 && at > t.due+bound && (t.attempt == 0 || t.settings.Ack != schemas.AckReport)
}

// after returns the end of a task that came with its made-th attempt.
func (e transition) after(made int) transition {
	e.Attempt, e.Dead.Attempt = made, made
	for i := range e.events {
		e.events[i].Attempt = made
	}
	return e
}
