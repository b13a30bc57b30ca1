package scanner

import (
	"context"
	"time"

	"go.uber.org/zap"

	"github.com/notyet/notyet/events"
	"github.com/notyet/notyet/internal/faultpoint"
	"github.com/notyet/notyet/internal/index"
	"github.com/notyet/notyet/store"
	"github.com/notyet/notyet/store/intake"
)

// near is how soon a task must be due to wake its dispatcher. Dispatchers look at the database
// every second anyway, so they find later tasks in time.
const near = 3 * time.Second

// clocks is how far the clocks of processes may be apart: one may have added what is beyond
// another's window.
const clocks = time.Minute

// announcer passes a transaction's effects on: to the index and dispatchers, then to the results.
type announcer struct {
	indexer *indexer
	results *events.Publisher
	metrics *metrics
}

func (a announcer) announce(done intake.Applied) {
	for kind, n := range done.Dead {
		a.metrics.dead.WithLabelValues(kind).Add(float64(n))
	}
	a.indexer.put(done)
	a.results.Stored(done.Events)
}

// Index is the scanner's view of the index. internal/index has one in Redis, one in the database.
type Index interface {
	Add(ctx context.Context, entries []index.Entry) error
	Remove(ctx context.Context, entries []index.Entry) error
	Wake(ctx context.Context, at []index.SlotPos) error
}

type indexer struct {
	index   Index
	clock   *store.Clock
	window  time.Duration
	metrics *metrics
	log     *zap.Logger
	waiting chan intake.Applied // workers and the resolver put into it, run takes
}

func newIndexer(ix Index, clock *store.Clock, window time.Duration, metrics *metrics, log *zap.Logger) *indexer {
	return &indexer{index: ix, clock: clock, window: window, metrics: metrics, log: log, waiting: make(chan intake.Applied, 256)}
}

// put never waits: an index that does not answer must not hold the workers up.
func (x *indexer) put(done intake.Applied) {
	if len(done.Added)+len(done.Removed)+len(done.Timers) == 0 {
		return
	}
	select {
	case x.waiting <- done:
	default:
		x.metrics.indexDropped.Add(float64(len(done.Added) + len(done.Removed)))
	}
}

// run keeps the index up to date. The index is a hint. While it does not answer, updates are
// dropped. Dispatchers then go by the database, and repair the index afterwards.
func (x *indexer) run(ctx context.Context) {
	var awayUntil time.Time
	for {
		select {
		case <-ctx.Done():
			return
		case done := <-x.waiting:
			if time.Now().Before(awayUntil) {
				x.metrics.indexDropped.Add(float64(len(done.Added) + len(done.Removed)))
				continue
			}
			if err := x.update(ctx, done); err != nil && ctx.Err() == nil {
				awayUntil = time.Now().Add(time.Second)
				x.metrics.indexDropped.Add(float64(len(done.Added) + len(done.Removed)))
				x.log.Warn("updating the index failed", zap.Error(err))
			}
		}
	}
}

func (x *indexer) update(ctx context.Context, done intake.Applied) error {
	ctx, cancel := context.WithTimeout(ctx, 2*time.Second)
	defer cancel()
	now, news := x.clock.Millis(), index.News{Added: done.Added, Removed: done.Removed, Timers: done.Timers}
	// The wake goes first, because a task that is due now waits for it.
	if wake := news.Wakes(now + near.Milliseconds()); len(wake) > 0 {
		if err := x.index.Wake(ctx, wake); err != nil {
			return err
		}
	}
	remove := news.Gone(now + x.window.Milliseconds() + clocks.Milliseconds())
	if len(remove) > 0 { // before add: a fired task is removed from and added to the same slot under one seq
		if err := faultpoint.At(faultpoint.ScannerRemoving); err != nil {
			return err
		}
		if err := x.index.Remove(ctx, remove); err != nil {
			return err
		}
	}
	add := news.Entries(now + x.window.Milliseconds())
	if len(add) == 0 {
		return nil
	}
	return x.index.Add(ctx, add)
}
