package dispatcher

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/notyet/notyet/internal/election"
	"github.com/notyet/notyet/internal/kafka"
	"github.com/notyet/notyet/internal/loop"
	"github.com/notyet/notyet/store"
	"github.com/notyet/notyet/store/intake"
	"github.com/notyet/notyet/store/line"
)

// health tells the election whether this process can do the work of an owner: the database answers its reads, takes its claims and
// settlements, and some broker of Kafka answers. A topic that does not answer is no reason to leave: other dispatchers meet the same.
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
	// wroteWithin is how long a failed write counts. A process that owns slots tries again sooner; one that has left the election
	// must come back to find out.
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

// lastCall is what came of the latest call of a kind. Any loop notes it.
type lastCall struct{ failed atomic.Pointer[failedCall] }

type failedCall struct {
	err error
	at  time.Time
}

func (l *lastCall) note(err error) {
	if err == nil {
		l.failed.Store(nil)
		return
	}
	l.failed.Store(&failedCall{err, time.Now()})
}

// noteWrite notes what came of a write. A database that refuses it for its epoch, or for what is in it, has answered. A call that was
// given up because its caller ends says nothing.
func (l *lastCall) noteWrite(ctx context.Context, err error) {
	switch {
	case ctx.Err() != nil:
	case errors.Is(err, store.ErrFenced), errors.Is(err, line.ErrTurned), intake.BadRecord(err):
		l.note(nil)
	default:
		l.note(err)
	}
}

// failure returns why the latest call failed, if that is no longer ago than that.
func (l *lastCall) failure(within time.Duration) error {
	if f := l.failed.Load(); f != nil && time.Since(f.at) < within {
		return f.err
	}
	return nil
}
