package dispatcher

import (
	"context"
	"fmt"
	"sync"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/notyet/notyet/callback"
	"github.com/notyet/notyet/internal/faultpoint"
	"github.com/notyet/notyet/internal/kafka"
	"github.com/notyet/notyet/schemas"
	"github.com/notyet/notyet/task"
)

// sender sends staged tasks at their instant, each to its target.
type sender struct {
	*shared
	flight     *inFlight
	outlets    *outlets
	parking    *parking
	policies   *policies
	trust      *trust
	lookahead  *lookahead
	runs       *runGate
	client     *kgo.Client
	lost       *kafka.LostConnections // of client
	calls      *calls
	kafka      kafka.Config   // for producers that ask a target, or send a suspect, by themselves
	due        dueHeap        // staged tasks; the fetch loop pushes, the release loop pops; the lock of those in flight guards it
	background sync.WaitGroup // probes and suspects; see outage.go and isolate.go
}

func newSender(pk *parking, tr *trust, la *lookahead, cl *calls, client *kgo.Client, kcfg kafka.Config) *sender {
	return &sender{shared: pk.shared, flight: pk.flight, outlets: pk.outlets, parking: pk, policies: pk.outlets.policies, trust: tr, lookahead: la, runs: newRunGate(pk.flight), calls: cl, client: client, kafka: kcfg}
}

// await keeps a task with its body until it is due. inFlight.mu is held.
func (s *sender) await(t *claimedTask) { s.due.push(t) }

// releasePause is how long the release of what is due rests at least: what falls due meanwhile goes in one request, which costs
// a broker about as much as a task does.
const releasePause = 2 * time.Millisecond

// run sends each staged task at its instant, or with those of the 2 ms after it.
func (s *sender) run(ctx context.Context) {
	timer := time.NewTimer(time.Second)
	defer timer.Stop()
	for {
		s.flight.mu.Lock()
		timer.Reset(max(min(s.due.untilDue(s.clock.Now()), s.policies.untilRelease()), releasePause))
		s.flight.mu.Unlock()
		select {
		case <-ctx.Done():
			return
		case <-timer.C:
		case <-s.kicks.release:
		}
		for s.trust.trusted() && s.releaseSome(ctx) {
		}
		if !s.trust.trusted() {
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
	probe  bool // its outlet does not answer: it is sent apart

	call *callback.Request // of a callback, with the room that it takes at its origin
	seat *callback.Seat
}

// releaseSome sends what is due, and tells whether there may be more.
func (s *sender) releaseSome(ctx context.Context) bool {
	send := s.takeDue()
	for _, one := range send {
		if err := faultpoint.At(faultpoint.DispatcherTrusted); err != nil {
			s.probed(one)
			if one.seat != nil {
				one.seat.Leave()
			}
			s.answered(one.task, one.record, fmt.Errorf("%w: %w", kafka.ErrNotSent, err))
			continue
		}
		if one.call != nil {
			s.background.Go(func() { s.called(one.task, one.call.Method, one.seat.Send(ctx, *one.call)) })
			continue
		}
		if one.probe {
			s.background.Go(func() { s.probe(ctx, one) })
			continue
		}
		before := s.lost.Count()
		s.client.TryProduce(context.Background(), one.record, func(r *kgo.Record, err error) { s.answered(one.task, r, s.lost.Judge(err, before)) })
	}
	return len(send) == releaseBatch
}

// takeDue takes what is to be sent now.
func (s *sender) takeDue() []sendable {
	now := s.clock.Millis()
	send := make([]sendable, 0, releaseBatch)
	s.flight.mu.Lock()
	defer s.flight.mu.Unlock()
	take := func(t *claimedTask, waited bool) {
		if !t.slot.abandoned && s.admit(t, now, waited) {
			t.trace.begins()
			if t.call != nil {
				send = append(send, s.calls.begin(t))
				return
			}
			probe := t.with.outage != nil
			if probe {
				s.outlets.probes++
			}
			send = append(send, sendable{task: t, record: t.record, probe: probe})
		}
	}
	for len(send) < releaseBatch && len(s.due) > 0 && s.due[0].at <= now {
		take(s.due.pop(), false)
	}
	s.policies.release(func() bool { return len(send) < releaseBatch }, func(t *claimedTask) { take(t, false) })
	for _, g := range s.outlets.byKey {
		for len(send) < releaseBatch && len(g.waiting) > 0 && s.room(g, g.waiting[0]) {
			t := g.waiting[0]
			g.waiting = g.waiting[1:]
			take(t, true)
		}
		g.leaveSeat()
	}
	return send
}

// admit decides what becomes of a due task: true means that it is to be sent now. One that has waited for its target goes
// before one that has not. inFlight.mu is held.
func (s *sender) admit(t *claimedTask, now int64, waited bool) bool {
	s.policies.arrives(t)
	if t.state == task.StateReport {
		s.unreported(t)
		return false
	}
	if t.slot.leavingFor() > s.cfg.lastSend() {
		s.flight.postpone(t, now, time.Millisecond) // its next owner sends it
		return false
	}
	if t.settings.Run.Timer != "" && !s.runs.admit(t, now) {
		return false
	}
	if bound := t.settings.MaxLateness.Milliseconds(); bound > 0 && now > t.due+bound && !t.maybeSent() {
		s.flight.deadLetterLocked(t, schemas.KindExpired, fmt.Sprintf("it could not be delivered within notyet-max-lateness %v of its due time", t.settings.MaxLateness))
		return false
	}
	if t.call != nil && s.calls.sender == nil {
		s.flight.deadLetterLocked(t, schemas.KindCallback, "this dispatcher makes no HTTP callbacks: set callback.enabled")
		return false
	}
	if s.policies.detains(t, now) {
		return false
	}
	g := s.outlets.of(t)
	s.parking.rejudgeParked(t, g)
	switch {
	case g.origin && g.outage != nil:
		if !g.outage.claim(time.Now()) {
			s.parking.putOff(t, g)
			return false
		}
		if !s.room(g, t) {
			g.outage.probing = false
			s.parking.putOff(t, g)
			return false
		}
	case g.outage != nil && (s.outlets.probes >= probesAtOnce || !g.outage.claim(time.Now())):
		s.parking.putOff(t, g)
		return false
	case g.outage == nil && s.outlets.refusals.putsOff(t.topic, time.Now(), g.sending > 0):
		s.flight.postpone(t, now, s.outlets.refusals.pause(t.topic))
		return false
	case g.outage == nil && (!waited && len(g.waiting) > 0 || !s.room(g, t)):
		if g.outage != nil { // an origin, and it is known now
			s.parking.putOff(t, g)
			return false
		}
		g.waiting = append(g.waiting, t)
		return false
	}
	s.outlets.beginSending(g, t)
	t.status = sending
	return true
}

// answered runs when Kafka has answered. What follows for the task, the settle loop decides.
func (s *sender) answered(t *claimedTask, r *kgo.Record, err error) {
	s.answeredBy(t, r, err, false)
}

func (s *sender) answeredBy(t *claimedTask, r *kgo.Record, err error, alone bool) {
	if fault := faultpoint.At(faultpoint.DispatcherSent); fault != nil {
		err = fault
	}
	now := s.clock.Now()
	t.trace.sent(t, now, r, err)
	s.flight.mu.Lock()
	g := s.outlets.endSending(t)
	// That a record is too large, the producer may say by itself: only an answer to one sent alone shows that its target is there.
	if err == nil || kafka.ClockDiffers(err) || kafka.Permanent(err) && (alone || !kafka.MaybeCollateral(err)) {
		g.since = time.Now()
		s.parking.respondsAgain(g)
	} else if g.outage != nil {
		g.outage.probing = false
	}
	again := s.outlets.refusedForNow(t.topic, err)
	s.concludes(outcome{task: t, at: now.UnixMilli(), latest: s.clock.Latest(), partition: r.Partition, offset: r.Offset, err: err, alone: alone, again: again})
	kickRelease := len(g.waiting) > 0 || s.outlets.buffered.tasks > s.cfg.StageTasks/2 // or others wait for room
	s.outlets.forgetIdle(g)
	s.flight.mu.Unlock()
	if err == nil {
		s.observe(t.topic, now.Sub(time.UnixMilli(t.at)))
	}
	s.kicks.settle.now()
	if kickRelease {
		s.kicks.release.now()
	}
}

// concludes hands an outcome to the settle loop. inFlight.mu is held.
func (s *sender) concludes(o outcome) {
	if t := o.task; o.err == nil && t.status == sending {
		s.flight.unsettled.delivered(t)
	} else {
		s.flight.unsettled.ends(t)
	}
	s.flight.inbox.concludes(o)
}

// sendLater puts off a task that a producer gave back. Unless it is certain that the record is not in its topic, nothing may happen
// to the task any more but that it is sent: it must not be cancelled, replaced or called expired. inFlight.mu is held.
func (s *sender) sendLater(t *claimedTask, err error) {
	if !kafka.NotSent(err) {
		t.state = task.StateRetry
	}
	if g := s.outlets.byKey[t.outletKey]; g != nil && g.outage != nil {
		s.parking.putOff(t, g)
		return
	}
	s.flight.postpone(t, s.clock.Millis(), s.outlets.refusals.pause(t.topic))
}
