package dispatcher

import (
	"context"
	"maps"
	"slices"

	"go.uber.org/zap"

	"github.com/notyet/notyet/internal/index"
	"github.com/notyet/notyet/store/line"
)

// drift compares the nearest entries of each slot with the database's, and the number of all, and returns those that only one of
// the two has. Updates are always on their way, so only what was off the last time too is mended. An entry too many, which a
// late update has put back, costs a look and is taken out; for one that is missing the slot is loaded anew.
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

// compare returns which of the nearest entries of a piece, of which the database has about n, only the database has, and which
// only the index.
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
