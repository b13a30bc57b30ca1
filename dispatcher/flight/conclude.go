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

// Outcomes is for the settle loop: outcomes of sending, and outlets without any.
type Outcomes struct{ *machine }

// Logging are outcomes for the send log.
type Logging struct {
	Entries []sendlog.Outcome
	inbox   *inbox
	n       int // outcomes, also of those without an entry
}

// Logged says that the send log knows the outcomes.
func (l *Logging) Logged() { l.inbox.logged(l.n) }

// Suspects is for senders of refused tasks, each task by itself.
type Suspects struct{ *machine }

// final says whether the target refused the task for good.
func (o outcome) final() bool {
	if call, ok := errors.AsType[*CallError](o.err); ok {
		return call.Verdict == callback.Dead
	}
	return kafka.Permanent(o.err) && !o.again
}

// ToLog returns the outcomes to be logged; nil: none.
func (fl Outcomes) ToLog() *Logging {
	outcomes := fl.inbox.outcomesToLog()
	if len(outcomes) == 0 {
		return nil
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
	return &Logging{entries, fl.inbox, len(outcomes)}
}

// Conclude decides what follows from each outcome in the send log. It returns deliveries whose last
// events are to be published, and outlets whose suspects are to be sent, each by itself.
func (fl Outcomes) Conclude() (announce []Delivery, isolate []*Outlet) {
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

// conclude decides what follows from an outcome. announce: the last events are to be published
// before the outcome counts. isolate: the suspects of an outlet are to be sent.
func (fl Outcomes) conclude(o outcome) (announce bool, isolate *Outlet) {
	t := o.task
	switch {
	case fl.stuck[t.seq] == t:
		fl.answeredLate(o)
		return false, nil
	case t.status == leaving, t.status == left, t.slot.abandoned:
		return false, nil
	}
	call, isCall := errors.AsType[*CallError](o.err)
	switch {
	case isCall:
		fl.callFailed(t, o, call)
	case errors.Is(o.err, kafka.ErrNotStored):
		t.state = task.StateRetry // as in sendLater
		return false, fl.suspect(t)
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

// sendLater puts off a task given back by a producer. Unless its topic is certain not to have the
// record, the task can only be sent: it must not be cancelled, replaced or called expired.
func (fl Outcomes) sendLater(t *Task, err error) {
	t.doubt = t.doubt || !kafka.NotSent(err)
	if g := fl.outlets.closing(t.outletKey, time.Now()); g != nil {
		fl.putOff(t, g)
		return
	}
	fl.postpone(t, fl.clock.Millis(), unsentPause)
}

// callFailed decides what follows from an undelivered request: another attempt, or a dead letter.
func (fl Outcomes) callFailed(t *Task, o outcome, e *CallError) {
	made := t.attempt
	if e.Sent || e.Verdict == callback.Retry {
		made++
	}
	switch {
	case e.Verdict == callback.Dead:
		fl.log.Info("a callback cannot succeed", zap.String("topic", t.topic), zap.String("id", t.id), zap.Int("status", e.Status))
		fl.leave(t, fl.deadTransition(t, e.Kind, e.Reason).after(made))
	case made-t.snoozed >= t.settings.MaxAttempts:
		fl.leave(t, fl.deadTransition(t, schemas.KindDead, task.Exhausted(made-t.snoozed, e.Reason)).after(made))
	default:
		// One more: both times are cut to a millisecond, and the receiver counts from before its
		// answer came.
		pause := (e.Pause(t.settings.Pause(made, t.snoozed, schemas.NoRetryAfter)) + time.Millisecond - 1).Milliseconds()
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

// tooLateFor says whether an attempt at an instant would deliver a task later than allowed. A task
// with reports may have been delivered by an earlier attempt.
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

// answeredLate takes the answer about a task set aside meanwhile. Once the slot was lost, the
// answer ends nothing: the task may stand in another slot, and another owner may have sent the task
// too.
func (fl Outcomes) answeredLate(o outcome) {
	t := o.task
	if fl.slots[t.slot.number] != t.slot {
		delete(fl.stuck, t.seq)
		fl.keepDelivered(t)
		return
	}
	t.lateAnswer = true // it stays known as stuck until its end is durable
	late := &Task{slot: t.slot, seq: t.seq, at: t.at, lane: t.lane, doubt: t.doubt, content: t.content}
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

// leaveUnannounced stores the end of a delivered task out of its place, with the events, which are
// published from there.
func (fl Outcomes) leaveUnannounced(t *Task, at int64) {
	if !t.slot.abandoned {
		fl.leave(t, Transition{Transition: line.Transition{State: task.StateSucceeded, Attempt: t.attempt + 1, Lane: t.lane, Events: deliveredEvents(t, at)}})
	}
}

// Answer is the answer of a producer to a record, or of a receiver to a callback.
type Answer struct {
	At        int64 // Unix ms, by the database's clock
	Partition int32
	Offset    int64
	Err       error
	Alone     bool // it was sent by itself: an error is about nothing else
}

// Answered takes Kafka's answer. Conclude decides what follows for the task.
func (fl Due) Answered(t *Task, a Answer) {
	fl.mu.Lock()
	g := fl.outlets.endSending(t)
	t.arrived = t.arrived || !kafka.NotSent(a.Err)
	// The producer itself may refuse a record as too large: only an answer to a record sent alone
	// shows that its target is there.
	if a.Err == nil || kafka.ClockDiffers(a.Err) || kafka.Permanent(a.Err) && (a.Alone || !kafka.MaybeCollateral(a.Err)) {
		g.since = time.Now()
		fl.respondsAgain(g)
	}
	again := fl.refusedForNow(t.topic, a.Err)
	fl.concludes(outcome{task: t, at: a.At, partition: a.Partition, offset: a.Offset, err: a.Err, alone: a.Alone, again: again})
	kickRelease := len(g.waiting) > 0 || fl.outlets.buffered.tasks > fl.cfg.StageTasks/2 // or tasks of other outlets wait for room
	fl.outlets.forgetIdle(g)
	fl.mu.Unlock()
	fl.kicks.Settle.Now()
	if kickRelease {
		fl.kicks.Release.Now()
	}
}

// CallError is the outcome of an undelivered request.
type CallError struct{ callback.Outcome }

func (e *CallError) Error() string { return e.Reason }

// Called takes the outcome of a request, as Answered does for a record, and learns of the origin
// from the answer.
func (fl Due) Called(t *Task, a Answer, o callback.Outcome) {
	fl.mu.Lock()
	asked, now := t.asks != nil, time.Now()
	fl.outlets.leaveSeat(t, o.Status != 0, now)
	g := fl.outlets.endSending(t)
	t.arrived = o.Sent
	switch {
	case o.Verdict == callback.Retry && !o.Hasty:
		if g.origin.Failed(asked, o.After, now) {
			fl.originDown(g, o)
		}
	case o.Status != 0:
		if g.origin.Responded() {
			fl.log.Info("an origin answers again", zap.String("origin", g.topic))
			fl.recallParked(g)
		}
	case asked:
		g.bar().Unasked(now)
	}
	if o.Status != 0 {
		g.answers++
	}
	fl.concludes(outcome{task: t, at: a.At, err: a.Err, alone: true})
	fl.outlets.forgetIdle(g)
	fl.mu.Unlock()
	fl.kicks.Settle.Now()
	fl.kicks.Release.Now() // there is room again, perhaps for another origin
}

// concludes hands an outcome to the settle loop.
func (fl Due) concludes(o outcome) {
	if t := o.task; o.err == nil && t.status == sending {
		fl.unsettled.delivered(t)
	} else {
		fl.unsettled.ends(t)
	}
	fl.inbox.concludes(o)
}

// Probed counts the end of a probe.
func (fl Due) Probed() {
	fl.mu.Lock()
	defer fl.mu.Unlock()
	fl.outlets.probes--
}

// suspect queues a refused task, to be sent again by itself. It returns the task's outlet if nobody
// sends the outlet's suspects yet.
func (fl Outcomes) suspect(t *Task) *Outlet {
	g := fl.outlets.of(t)
	t.trace.begins()
	fl.outlets.beginSending(g, t) // until its second answer: a silent target is noticed, and its tasks leave their slots
	g.suspects = append(g.suspects, Sendable{Task: t, Record: t.record})
	if g.trying {
		return nil
	}
	g.trying = true
	return g
}

// Next returns the next of an outlet's suspects. false: none is left, and the caller sends them no
// more.
func (fl Suspects) Next(g *Outlet) (Sendable, bool) {
	fl.mu.Lock()
	defer fl.mu.Unlock()
	if len(g.suspects) == 0 {
		g.trying = false
		fl.outlets.forgetIdle(g)
		return Sendable{}, false
	}
	one := g.suspects[0]
	g.suspects = g.suspects[1:]
	return one, true
}

// Lost lets go of a suspect whose slot was lost: the next owner sends it, and nobody waits for an
// answer.
func (fl Suspects) Lost(t *Task) bool {
	fl.mu.Lock()
	defer fl.mu.Unlock()
	if fl.owns(t) {
		return false
	}
	fl.outlets.endSending(t)
	if fl.stuck[t.seq] == t {
		delete(fl.stuck, t.seq)
	}
	return true
}

// NotNow says that a suspect is not to be sent: its outlet does not answer, its target is paused,
// or the suspect was set aside while waiting here. In the last case its row has a later place,
// comes from there, and may have ended meanwhile.
func (fl Suspects) NotNow(g *Outlet, t *Task) bool {
	fl.mu.Lock()
	defer fl.mu.Unlock()
	gate := fl.gates.byTopic[g.topic]
	return fl.stuck[t.seq] == t || g.silent() || gate != nil && gate.Paused
}
