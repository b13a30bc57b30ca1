package scanner

import (
	"context"
	"errors"
	"time"

	"go.uber.org/zap"

	"github.com/notyet/notyet/internal/loop"
	"github.com/notyet/notyet/store"
	"github.com/notyet/notyet/store/intake"
)

type resolver struct {
	intake    intake.Intake
	applier   applier
	clock     *store.Clock
	announcer announcer
	log       *zap.Logger
}

// run decides requests that wait for a delivery's outcome, soon after the outcome is known. All
// scanners do so at the same time: the rows are locked, and each request is taken once.
func (r *resolver) run(ctx context.Context) {
	rest, after := resolveIdle, [16]byte{}
	for loop.Rest(ctx, rest) == nil {
		n, next, err := r.resolveOnce(ctx, after)
		if err != nil && ctx.Err() == nil {
			r.log.Warn("deciding waiting requests failed", zap.Error(err))
		}
		rest, after = resolvePause(n, next, err), next
	}
}

const (
	resolveIdle = 250 * time.Millisecond
	resolveBusy = 10 * time.Millisecond
)

// resolvePause is the pause after a look that found n identities and goes on behind next.
func resolvePause(n int, next [16]byte, err error) time.Duration {
	switch {
	case err != nil: // a request that cannot be decided is found by every look, and others wait too
		return resolveIdle
	case n > 0: // there is more to decide
		return resolveBusy
	case next != [16]byte{}: // there is more to look at
		return 50 * time.Millisecond
	}
	return resolveIdle
}

const resolveLook = 1000

// resolveOnce looks at identities with waiting requests behind after. The next look begins at next.
func (r *resolver) resolveOnce(ctx context.Context, after [16]byte) (n int, next [16]byte, err error) {
	keys, next, err := r.intake.Resolvable(ctx, after, resolveLook)
	if err != nil || len(keys) == 0 {
		return 0, next, err
	}
	return len(keys), next, r.resolveKeys(ctx, keys)
}

// resolveKeys halves a batch refused because of a record, so the record holds up no other.
func (r *resolver) resolveKeys(ctx context.Context, keys [][16]byte) error {
	done, err := r.applier.Apply(ctx, intake.Batch{Resolve: keys}, r.clock.Latest)
	if n := len(keys); n > 1 && intake.BadRecord(err) {
		return errors.Join(r.resolveKeys(ctx, keys[:n/2]), r.resolveKeys(ctx, keys[n/2:]))
	}
	if err != nil {
		return err
	}
	r.announcer.announce(done)
	return nil
}
