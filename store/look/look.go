// Package look holds the questions of people and of figures: lists, histories, forecasts, counts, the
// audit log. A filter goes in, and a page, a count or a task comes out. It only reads, and looks at no
// more rows than a question's limits allow.
package look

import (
	"cmp"
	"context"

	"github.com/notyet/notyet/store/internal/handle"
)

// Reader answers. It is a value without state of its own.
type Reader struct{ h *handle.Handle }

// New makes a Reader of a store.
func New(st handle.Source) Reader { return Reader{handle.Of(st)} }

// gather reads rows until it has limit (0: 100) of those to keep, has looked at most of them, or none is left. more says that rows may be
// left.
func gather[T any](limit, most, atOnce int, read func(n int) ([]T, error), keep func(T) bool) (kept []T, more bool, err error) {
	limit, kept = cmp.Or(max(limit, 0), 100), []T{}
	for looked := 0; looked < most; looked += atOnce {
		n := min(atOnce, most-looked)
		rows, err := read(n)
		if err != nil {
			return nil, false, err
		}
		for _, row := range rows {
			if !keep(row) {
				continue
			}
			if kept = append(kept, row); len(kept) == limit {
				return kept, true, nil
			}
		}
		if len(rows) < n {
			return kept, false, nil
		}
	}
	return kept, true, nil
}

// open returns how far the slots are settled, and the first place behind that which holds a task, of the slots that have one.
func (r Reader) open(ctx context.Context) (done map[int]int64, first []handle.SlotPos, err error) {
	all, err := r.h.Slots(ctx)
	if err != nil {
		return nil, nil, err
	}
	places := make([]handle.SlotPos, len(all))
	done = make(map[int]int64, len(all))
	for i, slot := range all {
		done[slot.Slot], places[i] = slot.Done, handle.SlotPos{Slot: slot.Slot, Pos: slot.Done}
	}
	first, err = r.h.Beyond(ctx, places)
	return done, first, err
}
