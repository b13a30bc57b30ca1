package dispatcher

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"
	"go.uber.org/zap"

	"github.com/notyet/notyet/internal/faultpoint"
	"github.com/notyet/notyet/internal/kafka"
	"github.com/notyet/notyet/schemas"
	"github.com/notyet/notyet/store"
	"github.com/notyet/notyet/task"
)

// releasePause is how long the release of what is due rests at least: what falls due meanwhile goes in one request, which costs
// a broker about as much as a task does.
const releasePause = 2 * time.Millisecond

// releaseLoop sends each staged task at its instant, or with those of the 2 ms after it.
func (d *Dispatcher) releaseLoop(ctx context.Context) {
	timer := time.NewTimer(time.Second)
	defer timer.Stop()
	for {
		d.mu.Lock()
		timer.Reset(max(d.due.untilDue(d.clock.Now()), releasePause))
		d.mu.Unlock()
		select {
		case <-ctx.Done():
			return
		case <-timer.C:
		case <-d.releaseKick:
		}
		for d.trusted() && d.releaseSome(ctx) {
		}
		if !d.trusted() {
			sleep(ctx, 10*time.Millisecond)
		}
	}
}

// releaseBatch bounds how many tasks are sent between two looks at whether the election still trusts us, which is how
// many a paused owner may send on waking.
const releaseBatch = 256

// sendable keeps the record of a task that may be abandoned while it is handed to the producer.
type sendable struct {
	task   *claimedTask
	record *kgo.Record
	probe  bool // its target does not answer: it is sent apart
}

// releaseSome sends what is due, and answers whether there may be more.
func (d *Dispatcher) releaseSome(ctx context.Context) bool {
	send := d.takeDue()
	for _, s := range send {
		if err := faultpoint.At(faultpoint.DispatcherTrusted); err != nil {
			d.probed(s)
			d.answered(s.task, s.record, fmt.Errorf("%w: %w", kafka.ErrNotSent, err))
			continue
		}
		if s.probe {
			d.solos.Go(func() { d.probe(ctx, s) })
			continue
		}
		d.client.TryProduce(context.Background(), s.record, func(r *kgo.Record, err error) { d.answered(s.task, r, err) })
	}
	return len(send) == releaseBatch
}

// takeDue takes what is to be sent now.
func (d *Dispatcher) takeDue() []sendable {
	now := d.clock.Millis()
	send := make([]sendable, 0, releaseBatch)
	d.mu.Lock()
	defer d.mu.Unlock()
	take := func(t *claimedTask, waited bool) {
		if !t.slot.abandoned && d.admit(t, now, waited) {
			probe := t.with.outage != nil
			if probe {
				d.probes++
			}
			send = append(send, sendable{t, t.record, probe})
		}
	}
	for len(send) < releaseBatch && len(d.due) > 0 && d.due[0].at <= now {
		take(d.due.pop(), false)
	}
	for _, g := range d.targets {
		for len(send) < releaseBatch && len(g.waiting) > 0 && d.hasRoom(g) {
			t := g.waiting[0]
			g.waiting = g.waiting[1:]
			take(t, true)
		}
	}
	return send
}

// admit decides what becomes of a due task: true means that it is to be sent now. One that has waited for its target goes
// before one that has not. mu is held.
func (d *Dispatcher) admit(t *claimedTask, now int64, waited bool) bool {
	if t.state == task.StateReport {
		d.unreported(t)
		return false
	}
	if bound := t.settings.MaxLateness.Milliseconds(); bound > 0 && now > t.due+bound && !t.maybeSent() {
		d.deadLetterLocked(t, schemas.KindExpired, fmt.Sprintf("it could not be delivered within notyet-max-lateness %v of its due time", t.settings.MaxLateness))
		return false
	}
	g := d.targetOf(t)
	d.rejudgeParked(t, g)
	switch {
	case g.outage != nil && (d.probes >= probesAtOnce || !g.outage.claim(time.Now())):
		d.putOff(t, g)
		return false
	case g.outage == nil && d.refusals.holds(t.topic, time.Now(), g.sending > 0):
		d.postpone(t, now, d.refusals.pause(t.topic))
		return false
	case g.outage == nil && (!waited && len(g.waiting) > 0 || !d.hasRoom(g)):
		g.waiting = append(g.waiting, t)
		return false
	}
	d.beginSending(g, t)
	t.status = sending
	return true
}

// answered is the producer's promise: it only notes.
func (d *Dispatcher) answered(t *claimedTask, r *kgo.Record, err error) {
	d.answeredBy(t, r, err, false)
}

func (d *Dispatcher) answeredBy(t *claimedTask, r *kgo.Record, err error, alone bool) {
	if fault := faultpoint.At(faultpoint.DispatcherSent); fault != nil {
		err = fault
	}
	now := d.clock.Now()
	d.mu.Lock()
	g := d.endSending(t)
	// That a record is too large, the producer may say by itself: only an answer to one sent alone shows that its target is there.
	if err == nil || kafka.Permanent(err) && (alone || !kafka.MaybeCollateral(err)) {
		g.since = time.Now()
		d.respondsAgain(g)
	} else if g.outage != nil {
		g.outage.probing = false
	}
	again := d.refusedForNow(t.topic, err)
	d.outcomes = append(d.outcomes, outcome{task: t, at: now.UnixMilli(), latest: d.clock.Latest(), partition: r.Partition, offset: r.Offset, err: err, alone: alone, again: again})
	kickRelease := len(g.waiting) > 0 || d.flight.tasks > d.cfg.StageTasks/2 // or others wait for room
	d.forgetIdle(g)
	d.mu.Unlock()
	if err == nil {
		d.metrics.lateness.Observe(max(now.Sub(time.UnixMilli(t.at)).Seconds(), 0))
	}
	d.settleKick.now()
	if kickRelease {
		d.releaseKick.now()
	}
}

// refusedForNow takes note of an answer to a record, and reports whether its target refused it and may take it in a moment. mu is
// held.
func (d *Dispatcher) refusedForNow(topic string, err error) bool {
	switch {
	case err == nil:
		if d.refusals.accepted(topic) {
			d.log.Info("a target takes records again", zap.String("topic", topic))
		}
	case kafka.TopicMayCome(err):
		if _, known := d.refusals.topics[topic]; !known {
			d.log.Warn("a target does not exist or may not be written: its tasks are tried for a while, then they are dead letters",
				zap.String("topic", topic), zap.Duration("undeliverable_after", d.cfg.UndeliverableAfter), zap.Error(err))
		}
		return !d.refusals.refused(topic, time.Now())
	}
	return false
}

// unsentPause is for how long a task is put off that was not sent.
const unsentPause = 5 * time.Second

// postpone puts a task off that was not sent, or was refused: unless a caller was told that it is too late, or an earlier owner may have
// sent it, it can be cancelled. mu is held.
func (d *Dispatcher) postpone(t *claimedTask, now int64, pause time.Duration) {
	d.metrics.postponed.Inc()
	state := task.StateLine
	if t.maybeSent() {
		state = task.StateRetry
	}
	d.leave(t, transition{Transition: store.Transition{State: state, Pos: now + pause.Milliseconds(), Attempt: t.attempt, Lane: t.lane}})
}

// setAside takes a task out of its line whose earlier sending is still unanswered; it stays out of reach of a cancel. mu is
// held.
func (d *Dispatcher) setAside(t, original *claimedTask) {
	const aside = 10_000
	d.leave(t, transition{Transition: store.Transition{State: task.StateRetry, Pos: d.clock.Millis() + aside, Attempt: original.attempt, Lane: t.lane}})
}

func (d *Dispatcher) deadLetter(t *claimedTask, kind, reason string) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.deadLetterLocked(t, kind, reason)
}

// deadLetterLocked ends a task with a dead letter. mu is held.
func (d *Dispatcher) deadLetterLocked(t *claimedTask, kind, reason string) {
	d.leave(t, d.death(t, kind, reason))
}

func (d *Dispatcher) death(t *claimedTask, kind, reason string) transition {
	return transition{
		Transition: store.Transition{State: task.StateDead, Attempt: t.attempt, Lane: t.lane, Dead: &task.DeadLetter{Seq: t.seq, Kind: kind, Topic: t.topic, TaskID: t.id, Due: t.due,
			Attempt: t.attempt, Replay: t.replay, Reason: reason, DiedAt: d.clock.Millis(), Body: t.body}},
		events: []schemas.Event{{State: schemas.StateDead, Kind: kind, Attempt: t.attempt, Reason: reason}},
	}
}

// leave takes a task out of its line with the next settlement. mu is held.
func (d *Dispatcher) leave(t *claimedTask, e transition) {
	e.Seq, e.Slot, e.Epoch, e.From = t.seq, t.slot.number, t.slot.epoch, t.pos
	e.task = t
	e.events = slices.DeleteFunc(e.events, func(ev schemas.Event) bool { return !task.Published(t.settings.Events, ev.State) })
	for i := range e.events {
		ev := &e.events[i]
		ev.Topic, ev.ID, ev.Due, ev.At = t.topic, t.id, t.due, d.clock.Millis()
	}
	d.unstage(t)
	d.proofs.forget(t.seq)
	if t.slot.abandoned { // its next owner decides
		return
	}
	t.status = leaving
	d.transitions = append(d.transitions, e)
	d.settleKick.now()
}
