package dispatcher

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/notyet/notyet/internal/election"
	"github.com/notyet/notyet/internal/kafka"
	"github.com/notyet/notyet/internal/loop"
)

// health tells the election whether this process can do the work of an owner: the database answers
// its reads, takes its claims and settlements, and some broker of Kafka answers. A silent topic is
// no reason to leave: other dispatchers meet the same.
type health struct {
	*shared
	members election.Source
	client  *kgo.Client
}

const (
	// healthEvery is how often the election is told.
	healthEvery = time.Second
	// brokerWithin bounds the wait for a broker's answer.
	brokerWithin = 4 * time.Second
	// wroteWithin is how long a failed write counts. A process with slots tries again sooner; one
	// that has left the election must come back to find out.
	wroteWithin = 30 * time.Second
)

func (h *health) run(ctx context.Context) {
	loop.Every(ctx, healthEvery, func(ctx context.Context) {
		if err := h.check(ctx); ctx.Err() == nil {
			h.members.Report(err)
		}
	})
}

// check returns why this process cannot work; nil: it can.
func (h *health) check(ctx context.Context) error {
	if err := errors.Join(h.reads.failure(wroteWithin), h.claims.failure(wroteWithin), h.settles.failure(wroteWithin)); err != nil {
		return fmt.Errorf("working on the database: %w", err)
	}
	bound, cancel := context.WithTimeout(ctx, brokerWithin)
	defer cancel()
	return kafka.Ping(bound, h.client)
}
