package dispatcher

import (
	"context"
	"maps"
	"slices"
	"time"

	"go.uber.org/zap"

	"github.com/notyet/notyet/dispatcher/flight"
	"github.com/notyet/notyet/internal/faultpoint"
	"github.com/notyet/notyet/internal/index"
	"github.com/notyet/notyet/internal/loop"
	"github.com/notyet/notyet/store/line"
)

// indexer keeps the index in step with the database. The warm loop runs it; the settle loop calls
// update. The database as an index needs no indexer.
type indexer struct {
	*shared
	flight flight.Owned
	index  Copy      // nil: the index is the database
	away   time.Time // of the settle loop: the index failed, leave it alone until then
}

// The index holds, for every slot, the tasks between claimed and the slot's mark. Its owner moves
// the mark ahead as time goes by, and loads the slot anew where the mark is gone or the number of
// entries has drifted from the database's.
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

// clearGivenUp empties the index of given-up slots: nobody owns them, and a late update may have
// added something. Only the owner of slot 0 does so.
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

const (
	// warmPage bounds one read and one run of additions.
	warmPage = 5000
	// slack is how far the mark stays behind the scanners' own additions, so that a task stored
	// while the mark moves is added by one or the other. It outlasts any transaction.
	slack = time.Minute
	// stride is how far the mark moves at least: the window is topped up now and then, not every
	// time.
	stride = time.Minute
)

// warm loads the tasks not yet covered by the marks, the nearest first, and lets go of settled
// ones.
func (ix *indexer) warm(ctx context.Context) error {
	views := ix.flight.Views()
	marks, err := ix.index.Marks(ctx, slotsOf(views))
	if err != nil {
		return err
	}
	upTo := ix.clock.Millis() + (ix.cfg.Window - min(slack, ix.cfg.Window/2)).Milliseconds()
	trim := make([]index.SlotPos, len(views))
	for i, v := range views {
		trim[i] = index.SlotPos{Slot: v.Slot, Pos: v.Done}
		mark, warm := marks[v.Slot]
		switch {
		case !warm:
			ix.metrics.rebuilds.Inc()
			mark = v.Done
		case upTo-mark < min(stride, ix.cfg.Window/4).Milliseconds():
			continue
		}
		if err := ix.load(ctx, v.Slot, max(mark, v.Done), upTo); err != nil {
			return err
		}
	}
	return ix.index.Trim(ctx, trim)
}

// load adds (from, upTo] of a slot to the index, page by page, then moves the mark.
func (ix *indexer) load(ctx context.Context, slot int, from, upTo int64) error {
	for at := from; at < upTo; {
		to, more, err := ix.line.Nth(ctx, line.Range{Slot: slot, From: at, To: upTo}, warmPage)
		if err != nil {
			return err
		}
		if !more {
			to = upTo
		}
		entries, err := ix.line.Entries(ctx, []line.Range{{Slot: slot, From: at, To: to}})
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

// drift compares the nearest entries of each slot with the database's, and the number of all, and
// returns entries that only one of the two has. Updates are always on their way, so only an entry
// that was off the last time too is mended. An entry too many, put back by a late update, costs a
// look and is taken out; for a missing one the slot is loaded anew.
func (ix *indexer) drift(ctx context.Context, before map[index.Entry]bool) (map[index.Entry]bool, error) {
	now := map[index.Entry]bool{}
	views := ix.flight.Views()
	marks, err := ix.index.Marks(ctx, slotsOf(views))
	if err != nil {
		return now, err
	}
	ranges := make([]line.Range, 0, len(views))
	for _, v := range views {
		if mark, ok := marks[v.Slot]; ok && mark > v.Claimed {
			ranges = append(ranges, line.Range{Slot: v.Slot, From: v.Claimed, To: mark})
		}
	}
	want, err := ix.line.Count(ctx, ranges)
	if err != nil {
		return now, err
	}
	fresh := func(e index.Entry) bool { now[e] = true; return !before[e] }
	for _, r := range ranges {
		have, err := ix.index.Count(ctx, r.Slot, r.From, r.To)
		if err != nil {
			return now, err
		}
		if have == 0 && want[r.Slot] == 0 {
			continue
		}
		missing, extra := []index.Entry{{Slot: r.Slot}}, []index.Entry(nil) // stands for the number
		if off := have - int64(want[r.Slot]); -driftPage <= off && off <= driftPage {
			if missing, extra, err = ix.compare(ctx, r, want[r.Slot]); err != nil {
				return now, err
			}
		}
		missing, extra = slices.DeleteFunc(missing, fresh), slices.DeleteFunc(extra, fresh)
		if err := ix.index.Remove(ctx, extra); err != nil {
			return now, err
		}
		if len(missing) == 0 {
			continue
		}
		ix.metrics.drift.Inc()
		ix.log.Warn("the index has drifted from the database: loading the slot anew", zap.Int("slot", r.Slot), zap.Int64("index", have), zap.Int("database", want[r.Slot]))
		if err := ix.index.Clear(ctx, r.Slot); err != nil {
			return now, err
		}
	}
	return now, nil
}

// compare returns which of the nearest entries of a piece, with about n in the database, only the
// database has, and which only the index.
func (ix *indexer) compare(ctx context.Context, r line.Range, n int) (missing, extra []index.Entry, err error) {
	if n > driftPage {
		to, more, err := ix.line.Nth(ctx, r, driftPage)
		if err != nil {
			return nil, nil, err
		}
		if more {
			r.To = to
		}
	}
	var rows []line.Entry
	if n > 0 {
		if rows, err = ix.line.Entries(ctx, []line.Range{r}); err != nil {
			return nil, nil, err
		}
	}
	members, err := ix.index.Range(ctx, r.Slot, r.From, r.To)
	if err != nil {
		return nil, nil, err
	}
	only := make(map[index.Entry]bool, len(members))
	for _, m := range members {
		only[m] = true
	}
	for _, row := range rows {
		e := row.Place
		if !only[e] {
			missing = append(missing, e)
		}
		delete(only, e)
	}
	return missing, slices.Collect(maps.Keys(only)), nil
}
