package dispatcher

import (
	"context"
	"fmt"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"
	"go.uber.org/zap"

	"github.com/notyet/notyet/internal/kafka"
)

// An outlet that does not answer is asked by one task at a time, from a producer made for that, so that nobody else's records share
// a request, a connection or a buffer with it. Its other tasks are put off until about the next time it is asked, longer and longer.

const (
	firstProbePause   = 5 * time.Second
	longestProbePause = time.Minute
	// outageForgotten is how long nothing may be there to ask an unresponsive outlet with, before it counts as any other.
	outageForgotten = 10 * time.Minute
	// probesAtOnce bounds the producers that ask: each is a connection or more.
	probesAtOnce = 32
	// shortestProbe is how long a probe may take however soon an outlet is called silent: that a topic does not exist is known after
	// about 5 s. A probe that ended before would never learn of it, and the topic's tasks would be put off for ever.
	shortestProbe = 10 * time.Second
)

// outage is the time in which an outlet does not answer. The lock of those in flight guards it.
type outage struct {
	pause   time.Duration
	next    time.Time // nothing is sent before
	probing bool      // a task is on its way
	let     time.Time // when the latest one was read for that
}

func newOutage(now time.Time) *outage {
	return &outage{pause: firstProbePause, next: now.Add(firstProbePause)}
}

// claim reports whether a task may be sent to ask the outlet, and takes the right to.
func (o *outage) claim(now time.Time) bool {
	if !o.mayAsk(now) {
		return false
	}
	o.probing = true
	o.pause = min(2*o.pause, longestProbePause)
	o.next = now.Add(o.pause)
	return true
}

func (o *outage) mayAsk(now time.Time) bool { return !o.probing && !now.Before(o.next) }

// lets reports whether the body of a task is to be read to ask the outlet with, and takes the right to for a moment.
func (o *outage) lets(now time.Time) bool {
	if !o.mayAsk(now) || now.Sub(o.let) < time.Second {
		return false
	}
	o.let = now
	return true
}

// wait is for how long a task is put off: until the outlet is asked again, or if that is about to happen, for as long as the pause
// before was.
func (o *outage) wait(now time.Time) time.Duration {
	if !now.Before(o.next) {
		return o.pause
	}
	return max(o.next.Sub(now), time.Second)
}

func (o *outage) over(now time.Time) bool { return now.Sub(o.next) > outageForgotten }

// giveUpAfter is how long the producers try with a record.
func (c Config) giveUpAfter() time.Duration { return max(3*c.UnresponsiveAfter, 3*time.Second) }

// probe sends one task to an outlet that does not answer, and waits no longer than for an outlet to be called so, or for the verdict that it
// does not exist.
func (s *sender) probe(ctx context.Context, one sendable) {
	defer s.probed(one)
	lost := new(kafka.LostConnections)
	client, err := kafka.NewSoloProducer(s.kafka, s.log, lost.Opts()...)
	if err != nil {
		s.answered(one.task, one.record, fmt.Errorf("%w: %w", kafka.ErrNotSent, err))
		return
	}
	bound, cancel := context.WithTimeout(ctx, max(s.cfg.UnresponsiveAfter, shortestProbe))
	defer cancel()
	stop := context.AfterFunc(bound, client.Close) // nothing else ends a send that is under way
	var r *kgo.Record
	r, err = client.ProduceSync(context.Background(), one.record).First()
	stop()
	client.Close()
	if ctx.Err() == nil {
		s.answeredBy(one.task, r, lost.Judge(err, 0), true)
	}
}

// probed counts a probe that is over.
func (s *sender) probed(one sendable) {
	if one.probe {
		s.flight.mu.Lock()
		defer s.flight.mu.Unlock()
		s.outlets.probes--
	}
}

// fallsSilent begins an outage. inFlight.mu is held.
func (outs *outlets) fallsSilent(g *outlet) {
	g.outage = newOutage(time.Now())
	outs.metrics.unresponsive.Inc()
	outs.log.Warn("a target does not answer: its tasks are set aside", zap.String("topic", g.topic), zap.Int32("partition", g.partition), zap.Int("in_flight", g.sending))
}
