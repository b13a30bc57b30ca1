package dispatcher

import (
	"context"
	"maps"
	"slices"
	"time"

	"go.uber.org/zap"

	"github.com/notyet/notyet/internal/faultpoint"
	"github.com/notyet/notyet/internal/index"
	"github.com/notyet/notyet/store"
)

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

func (d *Dispatcher) warmLoop(ctx context.Context) {
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
		err := d.warm(ctx)
		if err == nil && time.Since(lastDrift) >= driftEvery {
			lastDrift = time.Now()
			suspects, err = d.drift(ctx, suspects)
		}
		if err != nil && ctx.Err() == nil {
			d.metrics.indexErrors.Inc()
			d.log.Warn("keeping the index in step failed, dispatch goes on from the database", zap.Error(err))
		}
	}
}

type slotView struct {
	slot          int
	claimed, done int64
}

func (d *Dispatcher) views() []slotView {
	d.mu.Lock()
	defer d.mu.Unlock()
	out := make([]slotView, 0, len(d.lines))
	for _, l := range d.lines {
		out = append(out, slotView{l.number, l.claimed, l.done})
	}
	slices.SortFunc(out, func(a, b slotView) int { return a.slot - b.slot })
	return out
}

func slotsOf(views []slotView) []int {
	out := make([]int, len(views))
	for i, v := range views {
		out[i] = v.slot
	}
	return out
}

// warm loads what the marks do not cover yet, the nearest first, and lets go of what is settled.
func (d *Dispatcher) warm(ctx context.Context) error {
	views := d.views()
	marks, err := d.index.Marks(ctx, slotsOf(views))
	if err != nil {
		return err
	}
	upTo := d.clock.Millis() + (d.cfg.Window - min(slack, d.cfg.Window/2)).Milliseconds()
	trim := make([]index.SlotPos, len(views))
	for i, v := range views {
		trim[i] = index.SlotPos{Slot: v.slot, Pos: v.done}
		mark, warm := marks[v.slot]
		switch {
		case !warm:
			d.metrics.rebuilds.Inc()
			mark = v.done
		case upTo-mark < min(stride, d.cfg.Window/4).Milliseconds():
			continue
		}
		if err := d.load(ctx, v.slot, max(mark, v.done), upTo); err != nil {
			return err
		}
	}
	return d.index.Trim(ctx, trim)
}

// load adds (from, upTo] of a slot to the index, page by page, then moves the mark.
func (d *Dispatcher) load(ctx context.Context, slot int, from, upTo int64) error {
	for at := from; at < upTo; {
		to, more, err := d.store.Nth(ctx, store.Range{Slot: slot, From: at, To: upTo}, warmPage)
		if err != nil {
			return err
		}
		if !more {
			to = upTo
		}
		entries, err := d.store.Entries(ctx, []store.Range{{Slot: slot, From: at, To: to}})
		if err != nil {
			return err
		}
		add := make([]index.Entry, len(entries))
		for i, e := range entries {
			add[i] = index.Entry{Slot: slot, Pos: e.Pos, Seq: uint64(e.Seq)}
		}
		if err := faultpoint.At(faultpoint.DispatcherWindow); err != nil {
			return err
		}
		if err := d.index.Add(ctx, add); err != nil {
			return err
		}
		at = to
	}
	return d.index.SetMark(ctx, slot, upTo)
}

// drift compares the nearest entries of each slot with the database's, and the number of all, and answers those that only one of
// the two has. Updates are always on their way, so only what was off the last time too is mended. An entry too many, which a
// late update has put back, costs a look and is taken out; for one that is missing the slot is loaded anew.
func (d *Dispatcher) drift(ctx context.Context, before map[index.Entry]bool) (map[index.Entry]bool, error) {
	now := map[index.Entry]bool{}
	views := d.views()
	marks, err := d.index.Marks(ctx, slotsOf(views))
	if err != nil {
		return now, err
	}
	ranges := make([]store.Range, 0, len(views))
	for _, v := range views {
		if mark, ok := marks[v.slot]; ok && mark > v.claimed {
			ranges = append(ranges, store.Range{Slot: v.slot, From: v.claimed, To: mark})
		}
	}
	want, err := d.store.Count(ctx, ranges)
	if err != nil {
		return now, err
	}
	fresh := func(e index.Entry) bool { now[e] = true; return !before[e] }
	for _, r := range ranges {
		have, err := d.index.Count(ctx, r.Slot, r.From, r.To)
		if err != nil {
			return now, err
		}
		if have == 0 && want[r.Slot] == 0 {
			continue
		}
		missing, extra := []index.Entry{{Slot: r.Slot}}, []index.Entry(nil) // stands for the number
		if off := have - int64(want[r.Slot]); -driftPage <= off && off <= driftPage {
			if missing, extra, err = d.compare(ctx, r, want[r.Slot]); err != nil {
				return now, err
			}
		}
		missing, extra = slices.DeleteFunc(missing, fresh), slices.DeleteFunc(extra, fresh)
		if err := d.index.Remove(ctx, extra); err != nil {
			return now, err
		}
		if len(missing) == 0 {
			continue
		}
		d.metrics.drift.Inc()
		d.log.Warn("the index has drifted from the database: loading the slot anew", zap.Int("slot", r.Slot), zap.Int64("index", have), zap.Int("database", want[r.Slot]))
		if err := d.index.Clear(ctx, r.Slot); err != nil {
			return now, err
		}
	}
	return now, nil
}

// compare answers which of the nearest entries of a piece, of which the database has about n, only the database has, and which
// only the index.
func (d *Dispatcher) compare(ctx context.Context, r store.Range, n int) (missing, extra []index.Entry, err error) {
	if n > driftPage {
		to, more, err := d.store.Nth(ctx, r, driftPage)
		if err != nil {
			return nil, nil, err
		}
		if more {
			r.To = to
		}
	}
	var rows []store.Entry
	if n > 0 {
		if rows, err = d.store.Entries(ctx, []store.Range{r}); err != nil {
			return nil, nil, err
		}
	}
	members, err := d.index.Range(ctx, r.Slot, r.From, r.To)
	if err != nil {
		return nil, nil, err
	}
	only := make(map[index.Entry]bool, len(members))
	for _, m := range members {
		only[m] = true
	}
	for _, row := range rows {
		e := index.Entry{Slot: row.Slot, Pos: row.Pos, Seq: uint64(row.Seq)}
		if !only[e] {
			missing = append(missing, e)
		}
		delete(only, e)
	}
	return missing, slices.Collect(maps.Keys(only)), nil
}

// updateIndex is best effort: the index is a hint, and what is missed here is mended by warm.
func (d *Dispatcher) updateIndex(ctx context.Context, trim []index.SlotPos, add []index.Entry) {
	if time.Now().Before(d.indexAway) {
		return
	}
	bound, cancel := context.WithTimeout(ctx, 500*time.Millisecond)
	defer cancel()
	err := faultpoint.At(faultpoint.DispatcherMarked)
	if err == nil {
		err = d.index.Trim(bound, trim)
	}
	if err == nil && len(add) > 0 {
		err = d.index.Add(bound, add)
	}
	if err != nil {
		d.indexAway = time.Now().Add(2 * time.Second)
		d.metrics.indexErrors.Inc()
	}
}
