package scanner

import (
	"context"
	"strconv"
	"time"

	"go.uber.org/zap"

	"github.com/notyet/notyet/internal/loop"
	"github.com/notyet/notyet/store"
	"github.com/notyet/notyet/store/intake"
	"github.com/notyet/notyet/store/look"
)

const (
	watchEvery = 10 * time.Second
	// behindAfter is how long a task may be overdue before its slot counts as behind. Another
	// dispatcher takes over the slots of a lost one within about 25 s.
	behindAfter = time.Minute
)

// watcher observes the dispatchers from outside, in the database. So it also notices when there are
// none, when none trusts its slots, and when one hangs. It also shows standing partitions.
type watcher struct {
	store    *store.Store
	clock    *store.Clock
	parts    *partitions
	standing *standing
	metrics  *metrics
	log      *zap.Logger
}

func (w *watcher) run(ctx context.Context) { loop.Every(ctx, watchEvery, w.look) }

func (w *watcher) look(ctx context.Context) {
	w.metrics.standing.Reset()
	stand := map[partitionKey]tried{}
	w.standing.each(func(key partitionKey, t tried, long time.Duration) {
		stand[key] = t
		w.metrics.standing.WithLabelValues(key.topic, strconv.Itoa(int(key.partition))).Set(long.Seconds())
	})
	w.metrics.halted.Reset()
	w.parts.halted.each(func(key partitionKey, _ halt) {
		w.metrics.halted.WithLabelValues(key.topic, strconv.Itoa(int(key.partition))).Set(1)
	})
	w.noteStanding(ctx, stand)
	now := w.clock.Millis()
	behind, err := look.New(w.store).Overdue(ctx, now-behindAfter.Milliseconds())
	if err != nil {
		if ctx.Err() == nil {
			w.metrics.storeErrors.Inc()
			w.log.Warn("looking for slots that lie behind failed", zap.Error(err))
		}
		return
	}
	w.metrics.unclaimed.Set(float64(len(behind.Unclaimed)))
	w.metrics.unsettled.Set(float64(len(behind.Unsettled)))
	w.metrics.oldest.Set(0)
	if behind.Next > 0 && behind.Next < now {
		w.metrics.oldest.Set(float64(now-behind.Next) / 1000)
	}
	w.complain("tasks have been due for a minute and no dispatcher has claimed them", behind.Unclaimed)
	w.complain("claimed tasks have been due for a minute and are not settled", behind.Unsettled)
}

func (w *watcher) noteStanding(ctx context.Context, stand map[partitionKey]tried) {
	ctx, cancel := context.WithTimeout(ctx, watchEvery/2)
	defer cancel()
	for key, t := range stand {
		src, _ := w.parts.source(key)
		if src == nil {
			continue
		}
		if err := intake.New(w.store).Stands(ctx, src.ID, t.offset, orTimeout(t.err).Error()); err != nil {
			w.log.Debug("noting why an intake partition stands failed", zap.Error(err))
			return // the database itself is the problem
		}
	}
}

func (w *watcher) complain(what string, slots []store.Slot) {
	if len(slots) == 0 {
		return
	}
	numbers := make([]int, len(slots))
	for i, slot := range slots {
		numbers[i] = slot.Slot
	}
	w.log.Warn(what, zap.Ints("slots", numbers), zap.String("first_owner", slots[0].Owner))
}
