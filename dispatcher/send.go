package dispatcher

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"
	"go.uber.org/zap"

	"github.com/notyet/notyet/callback"
	"github.com/notyet/notyet/dispatcher/flight"
	"github.com/notyet/notyet/internal/faultpoint"
	"github.com/notyet/notyet/internal/kafka"
	"github.com/notyet/notyet/internal/loop"
)

// sender sends staged tasks at their instant, each to its target.
type sender struct {
	*shared
	flight     flight.Due
	suspects   flight.Suspects
	trust      *trust
	producers  *producers
	unmet      func(flight.Sendable) // takes what no producer knows the topic of
	kafka      kafka.Config          // for producers that ask a target, or send a suspect, by themselves
	calls      *callback.Sender
	background sync.WaitGroup // probes, suspects and callbacks
}

func newSender(sh *shared, fl *flight.Flight, tr *trust, ps *producers, kcfg kafka.Config, calls *callback.Sender) *sender {
	return &sender{shared: sh, flight: fl.Due, suspects: fl.Suspects, trust: tr, producers: ps, kafka: kcfg, calls: calls}
}

// releasePause is how long the release of due tasks rests at least: all that fall due meanwhile go
// in one request, which costs a broker about as much as one task does.
const releasePause = 2 * time.Millisecond

// run sends each staged task at its instant, or with the tasks of the next 2 ms.
func (s *sender) run(ctx context.Context) {
	timer := time.NewTimer(time.Second)
	defer timer.Stop()
	for {
		timer.Reset(max(s.flight.Until(), releasePause))
		select {
		case <-ctx.Done():
			return
		case <-timer.C:
		case <-s.kicks.Release:
		}
		for s.trust.trusted() && s.releaseSome(ctx) {
		}
		if !s.trust.trusted() {
			loop.Rest(ctx, 10*time.Millisecond)
		}
	}
}

// releaseSome sends what is due, and tells whether there may be more.
func (s *sender) releaseSome(ctx context.Context) bool {
	send, more := s.flight.Take()
	for _, one := range send {
		if err := faultpoint.At(faultpoint.DispatcherTrusted); err != nil {
			if one.Call != nil {
				s.called(one, callback.Outcome{Verdict: callback.NotSent, Reason: err.Error()})
				continue
			}
			s.probed(one)
			s.answered(one.Task, one.Record, fmt.Errorf("%w: %w", kafka.ErrNotSent, err))
			continue
		}
		if one.Call != nil {
			s.background.Go(func() { s.called(one, s.calls.Send(ctx, *one.Call)) })
			continue
		}
		if one.IsProbe {
			s.background.Go(func() { s.probe(ctx, one) })
			continue
		}
		if m := s.producers.begin(one.Record.Topic); m != nil {
			s.produce(m, one)
		} else {
			s.unmet(one)
		}
	}
	return more
}

// produce hands a record that has begun to the producer that has met its topic.
func (s *sender) produce(m *met, one flight.Sendable) {
	m.used.Store(true)
	before := m.lost.Count()
	m.client.TryProduce(context.Background(), one.Record, func(r *kgo.Record, err error) {
		s.answered(one.Task, r, m.acked.Judge(r, m.lost.Judge(err, before)))
		m.sending.Add(-1)
	})
}

// answered runs when Kafka has answered. The settle loop decides what follows for the task.
func (s *sender) answered(t *flight.Task, r *kgo.Record, err error) {
	s.answeredBy(t, r, err, false)
}

func (s *sender) answeredBy(t *flight.Task, r *kgo.Record, err error, alone bool) {
	switch {
	case errors.Is(err, kafka.ErrNotStored):
		s.metrics.notStored.Inc()
		s.log.Error("a record counts as not delivered, and is sent again by another producer", zap.String("topic", r.Topic), zap.Int32("partition", r.Partition), zap.Int64("offset", r.Offset), zap.Error(err))
	case err == nil && alone:
		if m := s.producers.of(r.Topic); m != nil {
			m.acked.Corrects(r)
		}
	}
	if fault := faultpoint.At(faultpoint.DispatcherSent); fault != nil {
		err = fault
	}
	now := s.clock.Now()
	t.TraceSent(now, r, err)
	s.flight.Answered(t, flight.Answer{At: now.UnixMilli(), Partition: r.Partition, Offset: r.Offset, Err: err, Alone: alone})
	if err == nil {
		s.observe(t.Topic(), now.Sub(t.At()))
	}
}

// called takes the outcome of a request, as answered does for a record. Other than a partition, an
// origin answers each request by itself, and a failed attempt counts: the next one is due after the
// task's backoff.
func (s *sender) called(one flight.Sendable, o callback.Outcome) {
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
		err = &flight.CallError{Outcome: o}
	}
	now, t := s.clock.Now(), one.Task
	t.TraceCalled(one.Call.Method, now, o)
	s.flight.Called(t, flight.Answer{At: now.UnixMilli(), Err: err, Alone: true}, o)
	if err == nil {
		s.observe(t.Topic(), now.Sub(t.At()))
	}
}

// shortestProbe is how long a probe may take however soon an outlet is called silent: a missing
// topic is known to be missing after about 5 s. A probe that ended before would never learn so, and
// the topic's tasks would be put off for ever.
const shortestProbe = 10 * time.Second

// giveUpAfter is how long the producers try with a record.
func (c Config) giveUpAfter() time.Duration { return max(3*c.UnresponsiveAfter, 3*time.Second) }

// lastAnswer is for how long a probe waits for an answer beyond its time.
const lastAnswer = 2 * time.Second

// probe sends one task to a silent outlet, and waits until an outlet would be called silent again,
// or found missing.
func (s *sender) probe(ctx context.Context, one flight.Sendable) {
	defer s.probed(one)
	lost := new(kafka.LostConnections)
	client, err := kafka.NewSoloProducer(s.kafka, s.log, lost.Opts()...)
	if err != nil {
		s.answered(one.Task, one.Record, fmt.Errorf("%w: %w", kafka.ErrNotSent, err))
		return
	}
	r, err := produceWithin(ctx, client, one.Record, max(s.cfg.UnresponsiveAfter, shortestProbe), lastAnswer)
	if ctx.Err() == nil {
		s.answeredBy(one.Task, r, lost.Judge(err, 0), true)
	}
}

// produceWithin tries with a record until patience is over, and ends the client. A request under
// way at the end is waited for: the target may take the record at that moment, and another producer
// would write it once more.
func produceWithin(ctx context.Context, client *kgo.Client, record *kgo.Record, patience, answer time.Duration) (*kgo.Record, error) {
	defer client.Close()
	bound, cancel := context.WithTimeout(ctx, patience+answer)
	defer cancel()
	defer context.AfterFunc(bound, client.Close)() // nothing else ends a request without an answer
	tries, enough := context.WithTimeout(context.Background(), patience)
	defer enough()
	return client.ProduceSync(tries, record).First()
}

// probed counts a probe that is over.
func (s *sender) probed(one flight.Sendable) {
	if one.IsProbe {
		s.flight.Probed()
	}
}

// When one record of a partition fails for good, the producer fails all records of the partition
// with the same error, and the others are innocent. So suspects are sent again, one at a time, by a
// producer of their own, and only its answers count. Each topic has its own, so that a silent one
// holds up nobody else's suspects.

// isolate sends an outlet's suspects until none is left.
func (s *sender) isolate(ctx context.Context, g *flight.Outlet) {
	lost := new(kafka.LostConnections)
	opts := append(kafka.GiveUpAfter(s.cfg.giveUpAfter()), lost.Opts()...)
	alone, err := kafka.NewSoloProducer(s.kafka, s.log, opts...)
	for err != nil { // files of TLS or of a password that are being replaced; nobody else would take these tasks
		s.log.Error("making a producer for refused tasks failed, trying again", zap.String("topic", g.Topic()), zap.Error(err))
		if loop.Rest(ctx, time.Second); ctx.Err() != nil {
			return
		}
		alone, err = kafka.NewSoloProducer(s.kafka, s.log, opts...)
	}
	defer context.AfterFunc(ctx, alone.Close)() // nothing else ends a send that is under way
	defer alone.Close()
	for ctx.Err() == nil {
		one, ok := s.suspects.Next(g)
		if !ok {
			return
		}
		for !s.trust.trusted() && ctx.Err() == nil {
			loop.Rest(ctx, 10*time.Millisecond)
		}
		if s.suspects.Lost(one.Task) {
			continue
		}
		if s.suspects.NotNow(g, one.Task) {
			s.answeredBy(one.Task, one.Record, errUnresponsive, true)
			continue
		}
		before := lost.Count()
		r, err := alone.ProduceSync(ctx, one.Record).First()
		if ctx.Err() == nil {
			s.answeredBy(one.Task, r, lost.Judge(err, before), true)
		}
	}
}

// errUnresponsive ends the turn of a suspect not to be sent now: nothing of it is in the topic, and
// the suspect is put off.
var errUnresponsive = fmt.Errorf("%w: its target does not answer", kafka.ErrNotSent)
