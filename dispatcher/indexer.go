package dispatcher

import (
	"context"
	"time"

	"go.uber.org/zap"

	"github.com/notyet/notyet/dispatcher/flight"
	"github.com/notyet/notyet/internal/faultpoint"
	"github.com/notyet/notyet/internal/index"
	"github.com/notyet/notyet/internal/loop"
)

// indexer keeps the index in step with the database. The warm loop runs it; the settle loop calls update. An index that is the database needs
// none of that.
type indexer struct {
	*shared
	flight *flight.Flight
	index  Copy      // nil: the index is the database
	away   time.Time // of the settle loop: the index failed, leave it alone until then
}

// The index holds, for every slot, the tasks between claimed and the slot's mark. Its owner moves the mark ahead as time
// goes by, and loads the slot anew where the mark is gone or the number of entries has drifted from the database's.
const (
	warmEvery  = 2 * time.Second
	driftEvery = 30 * time.Second
	// driftPage is how many entries of a slot, the nearest, are compared one by one.
	driftPage = 1000
)

func (ix *indexer) run(ctx context.Context) {
	if ix.index == nil {
		return
	}
	lastDrift := time.Now()
	var suspects map[index.Entry]bool
	loop.Every(ctx, warmEvery, func(ctx context.Context) {
		err := ix.warm(ctx)
		if err == nil && time.Since(lastDrift) >= driftEvery {
			lastDrift = time.Now()
			if suspects, err = ix.drift(ctx, suspects); err == nil {
				err = ix.clearGivenUp(ctx)
			}
		}
		if err != nil && ctx.Err() == nil {
			ix.metrics.indexErrors.Inc()
			ix.log.Warn("keeping the index in step failed, dispatch goes on from the database", zap.Error(err))
		}
	})
}

// clearGivenUp empties the index of slots that were given up: nobody owns them, and a late update may have added something. It is for the
// owner of slot 0.
func (ix *indexer) clearGivenUp(ctx context.Context) error {
	if !ix.flight.OwnsFirst() {
		return nil
	}
	rows, err := ix.store.Slots(ctx)
	for i := 0; i < len(rows) && err == nil; i++ {
		if rows[i].GivenUp() {
			err = ix.index.Clear(ctx, rows[i].Slot)
		}
	}
	return err
}

// update is best effort: the index is a hint, and what is missed here is mended by warm.
func (ix *indexer) update(ctx context.Context, trim []index.SlotPos, add []index.Entry) {
	if ix.index == nil || time.Now().Before(ix.away) {
		return
	}
	bound, cancel := context.WithTimeout(ctx, 500*time.Millisecond)
	defer cancel()
	err := faultpoint.At(faultpoint.DispatcherMarked)
	if err == nil {
		err = ix.index.Trim(bound, trim)
	}
	if err == nil && len(add) > 0 {
		err = ix.index.Add(bound, add)
	}
	if err != nil {
		ix.away = time.Now().Add(2 * time.Second)
		ix.metrics.indexErrors.Inc()
	}
}

func slotsOf(views []flight.SlotView) []int {
	out := make([]int, len(views))
	for i, v := range views {
		out[i] = v.Slot
	}
	return out
}
