package scanner

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"go.uber.org/zap"

	"github.com/notyet/notyet/internal/kafka"
	"github.com/notyet/notyet/internal/loop"
	"github.com/notyet/notyet/store"
	"github.com/notyet/notyet/store/intake"
	"github.com/notyet/notyet/store/shards"
)

// retrier calls the database, or Kafka about its logs, again until there is an answer.
type retrier struct {
	failed prometheus.Counter
	log    *zap.Logger
}

// do runs f until it succeeds or ctx ends, with pauses from 50 ms to 5 s. It returns at once errors
// that another try cannot change: ErrFenced, ErrMap, ErrUncovered, ErrOlderCopy, and errors about a
// record; and ErrLater.
func (r retrier) do(ctx context.Context, what string, f func() error) error {
	for failures := 1; ; failures++ {
		err := f()
		if err == nil || errors.Is(err, store.ErrFenced) || errors.Is(err, shards.ErrMap) || errors.Is(err, intake.ErrUncovered) || errors.Is(err, intake.ErrLater) || errors.Is(err, kafka.ErrOlderCopy) || intake.BadRecord(err) {
			return err
		}
		r.failed.Inc()
		rest := loop.Pause(failures, 50*time.Millisecond, 5*time.Second)
		r.log.Warn("failed, trying again", zap.String("doing", what), zap.Duration("pause", rest), zap.Error(err))
		if ended := loop.Rest(ctx, rest); ended != nil {
			return fmt.Errorf("%s: %w", what, errors.Join(err, ended))
		}
	}
}

// rest is a time in which Kafka is not asked, since it did not answer.
type rest struct{ ends atomic.Pointer[time.Time] }

func (r *rest) begin(d time.Duration) { r.ends.Store(new(time.Now().Add(d))) }

func (r *rest) lasts() bool {
	ends := r.ends.Load()
	return ends != nil && time.Now().Before(*ends)
}
