package dispatcher

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"go.uber.org/zap"

	"github.com/notyet/notyet/dispatcher/flight"
	"github.com/notyet/notyet/internal/loop"
	"github.com/notyet/notyet/internal/sendlog"
	"github.com/notyet/notyet/store"
	"github.com/notyet/notyet/store/admin"
	"github.com/notyet/notyet/store/intake"
	"github.com/notyet/notyet/store/line"
)

// shared is for every part. Its fields are set once, by New.
type shared struct {
	cfg     Config
	store   *store.Store
	admin   admin.Admin
	intake  intake.Intake
	line    line.Line
	clock   *store.Clock
	log     *zap.Logger
	metrics *metrics
	kicks   flight.Kicks

	reads, claims, settles lastCall // of the database: the policies' reads, claims, settlements. health reads them

	targetMetrics *targetMetrics // of single targets; it has a lock of its own

	failure chan error // of Run, which ends with the first: see fail
}

func newShared(cfg Config, st *store.Store, reg prometheus.Registerer, log *zap.Logger) *shared {
	in := intake.New(st)
	m, byTarget := newMetrics(reg), newTargetMetrics(cfg.Targets, cfg.TopTargets, reg)
	m.Died = byTarget.died
	return &shared{cfg: cfg, store: st, admin: admin.New(st), intake: in, line: in.Line(), clock: st.Clock(), log: log, metrics: m, targetMetrics: byTarget, kicks: flight.NewKicks(), failure: make(chan error, 1)}
}

// horizon is the place, Unix ms, up to which the index knows tasks.
func (sh *shared) horizon() int64 { return sh.clock.Millis() + sh.cfg.Window.Milliseconds() }

// soon is when a task must be due, Unix ms, for the claim loop to be told of it. The sweep finds
// later ones in time.
func (sh *shared) soon() int64 {
	return sh.clock.Millis() + sh.cfg.BurstLookAhead.Milliseconds() + 2*flight.SweepEvery.Milliseconds()
}

// fail ends Run with an error that this process cannot mend.
func (sh *shared) fail(err error) {
	select {
	case sh.failure <- err:
	default:
	}
}

// pauseAfter is the pause after the n-th failure in a row: 40 ms to 2 s.
func pauseAfter(failures int) time.Duration {
	return loop.Pause(failures, 40*time.Millisecond, 2*time.Second)
}

// until runs f, each time within a bound, until it succeeds or ctx ends. A broken send log stays
// broken: the dispatcher ends, and another takes its slots.
func (sh *shared) until(ctx context.Context, what string, f func(context.Context) error) {
	const bound = 30 * time.Second
	for failures := 1; ctx.Err() == nil; failures++ {
		try, cancel := context.WithTimeout(ctx, bound)
		err := f(try)
		cancel()
		if err == nil {
			return
		}
		sh.metrics.Retries.Inc()
		if errors.Is(err, sendlog.ErrBroken) {
			sh.fail(fmt.Errorf("%s: %w", what, err))
			<-ctx.Done()
			return
		}
		if ctx.Err() == nil {
			sh.log.Warn("a step failed, trying again", zap.String("step", what), zap.Error(err))
		}
		loop.Rest(ctx, pauseAfter(failures))
	}
}

// lastCall is the outcome of the latest call of a kind. Any loop notes one.
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

// noteWrite notes the outcome of a write. A database that refuses a write for its epoch, or for its
// content, has answered. A call given up because its caller ends says nothing.
func (l *lastCall) noteWrite(ctx context.Context, err error) {
	switch {
	case ctx.Err() != nil:
	case errors.Is(err, store.ErrFenced), errors.Is(err, line.ErrTurned), errors.Is(err, line.ErrLife), intake.BadRecord(err):
		l.note(nil)
	default:
		l.note(err)
	}
}

// failure returns why the latest call failed, if the failure is recent enough.
func (l *lastCall) failure(within time.Duration) error {
	if f := l.failed.Load(); f != nil && time.Since(f.at) < within {
		return f.err
	}
	return nil
}

const (
	// roundPieces is how many pieces are settled before outcomes are noted and done moves: about
	// half a second's work.
	roundPieces = 4
)

// observe counts a delivery that was so late.
func (sh *shared) observe(topic string, late time.Duration) {
	seconds := max(late.Seconds(), 0)
	sh.metrics.lateness.Observe(seconds)
	sh.targetMetrics.observe(topic, seconds)
}
