package dispatcher

import (
	"context"
	"time"

	"go.uber.org/zap"

	"github.com/notyet/notyet/internal/faultpoint"
	"github.com/notyet/notyet/internal/index"
	"github.com/notyet/notyet/store"
)

// indexer keeps the index in step with the database. The warm loop runs it; the settle loop calls update.
type indexer struct {
	*shared
	flight *inFlight
	index  Index
	away   time.Time // of the settle loop: the index failed, leave it alone until then
}

// The index holds, for every slot, the tasks between claimed and the slot's mark. Its owner moves the mark ahead as time
// goes by, and loads the slot anew where the mark is gone or the number of entries has drifted from the database's.
const (
	warmEvery  = 2 * time.Second
	driftEvery = 30 * time.Second
	// warmPage bounds one read and one run of additions.
	warmPage = 5000
	// driftPage is how many entries of a slot, the nearest, are compared one by one.
	driftPage = 1000
	// slack is how far the mark stays behind what scanners add by themselves, so that a task stored while the mark moves
	// is added by one or the other. It outlasts any transaction.
	slack = time.Minute
	// stride is how far the mark moves at least: the window is topped up now and then, not every time.
	stride = time.Minute
)

func (ix *indexer) run(ctx context.Context) {
	tick := time.NewTicker(warmEvery)
	defer tick.Stop()
	lastDrift := time.Now()
	var suspects map[index.Entry]bool
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
		err := ix.warm(ctx)
		if err == nil && time.Since(lastDrift) >= driftEvery {
			lastDrift = time.Now()
			suspects, err = ix.drift(ctx, suspects)
		}
		if err != nil && ctx.Err() == nil {
			ix.metrics.indexErrors.Inc()
			ix.log.Warn("keeping the index in step failed, dispatch goes on from the database", zap.Error(err))
		}
	}
}

// warm loads what the marks do not cover yet, the nearest first, and lets go of what is settled.
func (ix *indexer) warm(ctx context.Context) error {
	views := ix.flight.views()
	marks, err := ix.index.Marks(ctx, slotsOf(views))
	if err != nil {
		return err
	}
	upTo := ix.clock.Millis() + (ix.cfg.Window - min(slack, ix.cfg.Window/2)).Milliseconds()
	trim := make([]index.SlotPos, len(views))
	for i, v := range views {
		trim[i] = index.SlotPos{Slot: v.slot, Pos: v.done}
		mark, warm := marks[v.slot]
		switch {
		case !warm:
			ix.metrics.rebuilds.Inc()
			mark = v.done
		case upTo-mark < min(stride, ix.cfg.Window/4).Milliseconds():
			continue
		}
		if err := ix.load(ctx, v.slot, max(mark, v.done), upTo); err != nil {
			return err
		}
	}
	return ix.index.Trim(ctx, trim)
}

// load adds (from, upTo] of a slot to the index, page by page, then moves the mark.
func (ix *indexer) load(ctx context.Context, slot int, from, upTo int64) error {
	for at := from; at < upTo; {
		to, more, err := ix.store.Nth(ctx, store.Range{Slot: slot, From: at, To: upTo}, warmPage)
		if err != nil {
			return err
		}
		if !more {
			to = upTo
		}
		entries, err := ix.store.Entries(ctx, []store.Range{{Slot: slot, From: at, To: to}})
		if err != nil {
			return err
		}
		add := make([]index.Entry, len(entries))
		for i, e := range entries {
			add[i] = index.Entry{Slot: slot, Pos: e.Pos, Seq: e.Seq}
		}
		if err := faultpoint.At(faultpoint.DispatcherWindow); err != nil {
			return err
		}
		if err := ix.index.Add(ctx, add); err != nil {
			return err
		}
		at = to
	}
	return ix.index.SetMark(ctx, slot, upTo)
}

// update is best effort: the index is a hint, and what is missed here is mended by warm.
func (ix *indexer) update(ctx context.Context, trim []index.SlotPos, add []index.Entry) {
	if time.Now().Before(ix.away) {
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
