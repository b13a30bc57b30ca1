package dispatcher

import (
	"context"
	"fmt"
	"time"

	"go.uber.org/zap"

	"github.com/notyet/notyet/dispatcher/flight"
	"github.com/notyet/notyet/internal/kafka"
	"github.com/notyet/notyet/internal/loop"
)

// When one record of a partition fails for good, the producer fails all that it holds for the partition with the same
// error, and the others are innocent. So suspects are sent again, one at a time, by a producer of their own, and only what
// it says counts. Each topic has its own, so that one that does not answer holds up nobody else's suspects.

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
		one, ok := s.flight.NextSuspect(g)
		if !ok {
			return
		}
		for !s.trust.trusted() && ctx.Err() == nil {
			loop.Rest(ctx, 10*time.Millisecond)
		}
		if !s.flight.Owns(one.Task) {
			s.flight.DropSuspect(one.Task)
			continue
		}
		if s.flight.NotNow(g, one.Task) {
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

// errUnresponsive ends the turn of a suspect that is not to be sent now: nothing is in the topic of it, and it is put off.
var errUnresponsive = fmt.Errorf("%w: its target does not answer", kafka.ErrNotSent)
