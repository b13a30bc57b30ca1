package dispatcher

import (
	"context"
	"fmt"
	"time"

	"go.uber.org/zap"

	"github.com/notyet/notyet/internal/kafka"
)

// When one record of a partition fails for good, the producer fails all that it holds for the partition with the same
// error, and the others are innocent. So suspects are sent again, one at a time, by a producer of their own, and only what
// it says counts. Each topic has its own, so that one that does not answer holds up nobody else's suspects.

// suspect queues a refused task. inFlight.mu is held.
func (s *sender) suspect(ctx context.Context, t *claimedTask) {
	g := s.outlets.of(t)
	t.trace.begins()
	s.outlets.beginSending(g, t) // until its second answer: a silent target is noticed, and its tasks leave their slots
	g.suspects = append(g.suspects, sendable{task: t, record: t.record})
	if !g.trying {
		g.trying = true
		s.background.Go(func() { s.isolate(ctx, g) })
	}
}

// isolate sends an outlet's suspects until none is left.
func (s *sender) isolate(ctx context.Context, g *outlet) {
	lost := new(kafka.LostConnections)
	opts := append(kafka.GiveUpAfter(s.cfg.giveUpAfter()), lost.Opts()...)
	alone, err := kafka.NewSoloProducer(s.kafka, s.log, opts...)
	for err != nil { // files of TLS or of a password that are being replaced; nobody else would take these tasks
		s.log.Error("making a producer for refused tasks failed, trying again", zap.String("topic", g.topic), zap.Error(err))
		if sleep(ctx, time.Second); ctx.Err() != nil {
			return
		}
		alone, err = kafka.NewSoloProducer(s.kafka, s.log, opts...)
	}
	defer context.AfterFunc(ctx, alone.Close)() // nothing else ends a send that is under way
	defer alone.Close()
	for ctx.Err() == nil {
		one, ok := s.nextSuspect(g)
		if !ok {
			return
		}
		for !s.trust.trusted() && ctx.Err() == nil {
			sleep(ctx, 10*time.Millisecond)
		}
		if !s.flight.owns(one.task.slot) {
			s.dropSuspect(one.task)
			continue
		}
		if s.isUnresponsive(g) {
			s.answeredBy(one.task, one.record, errUnresponsive, true)
			continue
		}
		before := lost.Count()
		r, err := alone.ProduceSync(ctx, one.record).First()
		if ctx.Err() == nil {
			s.answeredBy(one.task, r, lost.Judge(err, before), true)
		}
	}
}

// errUnresponsive ends the turn of a suspect whose outlet does not answer, or whose target is paused: nothing is in the topic of it, and it is put off.
var errUnresponsive = fmt.Errorf("%w: its target does not answer", kafka.ErrNotSent)

func (s *sender) nextSuspect(g *outlet) (sendable, bool) {
	s.flight.mu.Lock()
	defer s.flight.mu.Unlock()
	if len(g.suspects) == 0 {
		g.trying = false
		s.outlets.forgetIdle(g)
		return sendable{}, false
	}
	one := g.suspects[0]
	g.suspects = g.suspects[1:]
	return one, true
}

// dropSuspect lets go of a suspect whose slot was lost: its next owner sends it, and nobody waits for its answer.
func (s *sender) dropSuspect(t *claimedTask) {
	s.flight.mu.Lock()
	defer s.flight.mu.Unlock()
	s.outlets.endSending(t)
	if s.flight.stuck[t.seq] == t {
		delete(s.flight.stuck, t.seq)
	}
}

func (s *sender) isUnresponsive(g *outlet) bool {
	s.flight.mu.Lock()
	defer s.flight.mu.Unlock()
	return g.outage != nil || s.policies.paused(g.topic)
}
