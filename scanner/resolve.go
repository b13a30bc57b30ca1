package scanner

import (
	"context"
	"time"

	"go.uber.org/zap"

	"github.com/notyet/notyet/store"
)

// resolve decides requests that wait for a delivery's outcome, soon after it is known. Any scanner may: the rows it works
// on are locked, and each request is taken once.
func (s *Scanner) resolve(ctx context.Context) {
	const busy, idle, limit = 50 * time.Millisecond, 250 * time.Millisecond, 500
	pause := idle
	for {
		select {
		case <-ctx.Done():
			return
		case <-time.After(pause):
		}
		n, err := s.resolveOnce(ctx, limit)
		if err != nil && ctx.Err() == nil {
			s.log.Warn("deciding waiting requests failed", zap.Error(err))
		}
		pause = idle
		if n > 0 {
			pause = busy
		}
	}
}

func (s *Scanner) resolveOnce(ctx context.Context, limit int) (int, error) {
	keys, err := s.store.Resolvable(ctx, limit)
	if err != nil || len(keys) == 0 {
		return 0, err
	}
	done, err := s.store.Apply(ctx, store.Batch{Resolve: keys}, s.clock.Latest())
	if err != nil {
		return 0, err
	}
	s.applied(done)
	return len(keys), nil
}
