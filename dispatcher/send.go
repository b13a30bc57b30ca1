package dispatcher

import (
	"context"
	"fmt"
	"sync"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/notyet/notyet/callback"
	"github.com/notyet/notyet/dispatcher/flight"
	"github.com/notyet/notyet/internal/faultpoint"
	"github.com/notyet/notyet/internal/kafka"
	"github.com/notyet/notyet/internal/loop"
)

// sender sends staged tasks at their instant, each to its target.
type sender struct {
	*shared
	flight     *flight.Flight
	trust      *trust
	client     *kgo.Client
	lost       *kafka.LostConnections // of client
	kafka      kafka.Config           // for producers that ask a target, or send a suspect, by themselves
	background sync.WaitGroup         // probes, suspects and callbacks; see probe.go and isolate.go
}

func newSender(sh *shared, fl *flight.Flight, tr *trust, client *kgo.Client, kcfg kafka.Config) *sender {
	return &sender{shared: sh, flight: fl, trust: tr, client: client, kafka: kcfg}
}

// releasePause is how long the release of what is due rests at least: what falls due meanwhile goes in one request, which costs
// a broker about as much as a task does.
const releasePause = 2 * time.Millisecond

// run sends each staged task at its instant, or with those of the 2 ms after it.
func (s *sender) run(ctx context.Context) {
	timer := time.NewTimer(time.Second)
	defer timer.Stop()
	for {
		timer.Reset(max(s.flight.UntilRelease(), releasePause))
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
	send, more := s.flight.TakeDue()
	for _, one := range send {
		if err := faultpoint.At(faultpoint.DispatcherTrusted); err != nil {
			s.probed(one)
			if one.Seat != nil {
				one.Seat.Leave()
			}
			s.answered(one.Task, one.Record, fmt.Errorf("%w: %w", kafka.ErrNotSent, err))
			continue
		}
		if one.Call != nil {
			s.background.Go(func() { s.called(one.Task, one.Call.Method, one.Seat.Send(ctx, *one.Call)) })
			continue
		}
		if one.IsProbe {
			s.background.Go(func() { s.probe(ctx, one) })
			continue
		}
		before := s.lost.Count()
		s.client.TryProduce(context.Background(), one.Record, func(r *kgo.Record, err error) { s.answered(one.Task, r, s.lost.Judge(err, before)) })
	}
	return more
}

// answered runs when Kafka has answered. The settle loop decides what follows for the task.
func (s *sender) answered(t *flight.Task, r *kgo.Record, err error) {
	s.answeredBy(t, r, err, false)
}

func (s *sender) answeredBy(t *flight.Task, r *kgo.Record, err error, alone bool) {
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

// called takes what came of a request, as answered does for a record. Other than a partition, an origin answers each request by itself, and an
// attempt that failed counts: the next one is due after the task's backoff.
func (s *sender) called(t *flight.Task, method string, o callback.Outcome) {
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
	now := s.clock.Now()
	t.TraceCalled(method, now, o)
	s.flight.Called(t, flight.Answer{At: now.UnixMilli(), Err: err, Alone: true}, o)
	if err == nil {
		s.observe(t.Topic(), now.Sub(t.At()))
	}
}
