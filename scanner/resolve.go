package scanner

import (
	"context"
	"errors"
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
	return len(keys), s.resolveKeys(ctx, keys)
}

// resolveKeys halves what fails for a record, so that one that cannot be stored holds up nobody else.
func (s *Scanner) resolveKeys(ctx context.Context, keys [][16]byte) error {
	done, err := s.applier.Apply(ctx, store.Batch{Resolve: keys}, s.clock.Latest())
	if n := len(keys); n > 1 && store.BadRecord(err) {
		return errors.Join(s.resolveKeys(ctx, keys[:n/2]), s.resolveKeys(ctx, keys[n/2:]))
	}
	if err != nil {
		return err
	}
	s.applied(done)
	return nil
}
