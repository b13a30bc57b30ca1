package dispatcher

import (
	"context"
	"fmt"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/notyet/notyet/dispatcher/flight"
	"github.com/notyet/notyet/internal/kafka"
)

// shortestProbe is how long a probe may take however soon an outlet is called silent: that a topic does not exist is known after
// about 5 s. A probe that ended before would never learn of it, and the topic's tasks would be put off for ever.
const shortestProbe = 10 * time.Second

// giveUpAfter is how long the producers try with a record.
func (c Config) giveUpAfter() time.Duration { return max(3*c.UnresponsiveAfter, 3*time.Second) }

// probe sends one task to an outlet that does not answer, and waits no longer than for an outlet to be called so, or for the verdict that it
// does not exist.
func (s *sender) probe(ctx context.Context, one flight.Sendable) {
	defer s.probed(one)
	lost := new(kafka.LostConnections)
	client, err := kafka.NewSoloProducer(s.kafka, s.log, lost.Opts()...)
	if err != nil {
		s.answered(one.Task, one.Record, fmt.Errorf("%w: %w", kafka.ErrNotSent, err))
		return
	}
	bound, cancel := context.WithTimeout(ctx, max(s.cfg.UnresponsiveAfter, shortestProbe))
	defer cancel()
	stop := context.AfterFunc(bound, client.Close) // nothing else ends a send that is under way
	var r *kgo.Record
	r, err = client.ProduceSync(context.Background(), one.Record).First()
	stop()
	client.Close()
	if ctx.Err() == nil {
		s.answeredBy(one.Task, r, lost.Judge(err, 0), true)
	}
}

// probed counts a probe that is over.
func (s *sender) probed(one flight.Sendable) {
	if one.IsProbe {
		s.flight.Probed()
	}
}
