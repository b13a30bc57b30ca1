package dispatcher

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"go.uber.org/zap"

	"github.com/notyet/notyet/internal/sendlog"
	"github.com/notyet/notyet/store"
)

// shared is what every part works with. Its fields are set once, by New.
type shared struct {
	cfg     Config
	store   *store.Store
	clock   *store.Clock
	log     *zap.Logger
	metrics *metrics
	kicks   kicks

	reads, writes lastCall // of the database: the policies' reads; claims and settlements. health reads them

	targetMetrics *targetMetrics // of single targets; it has a lock of its own

	stopping atomic.Bool // Run sets it; the owner, claim and settle loops read it
	failure  chan error  // of Run, which ends with the first: see fail
}

func newShared(cfg Config, st *store.Store, reg prometheus.Registerer, log *zap.Logger) *shared {
	return &shared{cfg: cfg, store: st, clock: st.Clock(), log: log, metrics: newMetrics(reg), targetMetrics: newTargetMetrics(cfg.Targets, cfg.TopTargets, reg), kicks: newKicks(), failure: make(chan error, 1)}
}

// kicks has one for each loop. Anybody gives them, and only the loop takes its own.
type kicks struct{ own, claim, sweep, fetch, release, settle, timers, overlap kick }

func newKicks() kicks {
	return kicks{own: newKick(), claim: newKick(), sweep: newKick(), fetch: newKick(), release: newKick(), settle: newKick(), timers: newKick(), overlap: newKick()}
}

// kick wakes a loop; kicks that come while it is awake become one.
type kick chan struct{}

func newKick() kick { return make(kick, 1) }

func (k kick) now() {
	select {
	case k <- struct{}{}:
	default:
	}
}

// fail ends Run with an error that cannot be mended in this process.
func (sh *shared) fail(err error) {
	select {
	case sh.failure <- err:
	default:
	}
}

// pauseAfter is the pause after the n-th failure in a row: 20 ms to 2 s.
func pauseAfter(failures int) time.Duration {
	return min(20*time.Millisecond<<min(failures, 7), 2*time.Second)
}

func sleep(ctx context.Context, d time.Duration) {
	select {
	case <-ctx.Done():
	case <-time.After(d):
	}
}

// until runs f, each time within a bound, until it succeeds or ctx ends. A broken send log stays broken: the dispatcher
// ends, and another takes its slots.
func (sh *shared) until(ctx context.Context, what string, f func(context.Context) error) {
	const bound = 30 * time.Second
	for failures := 1; ctx.Err() == nil; failures++ {
		try, cancel := context.WithTimeout(ctx, bound)
		err := f(try)
		cancel()
		if err == nil {
			return
		}
		sh.metrics.retries.Inc()
		if errors.Is(err, sendlog.ErrBroken) {
			sh.fail(fmt.Errorf("%s: %w", what, err))
			<-ctx.Done()
			return
		}
		if ctx.Err() == nil {
			sh.log.Warn("a step failed, trying again", zap.String("step", what), zap.Error(err))
		}
		sleep(ctx, pauseAfter(failures))
	}
}
