// Package look holds the questions of people and of figures: lists, histories, forecasts, counts,
// the audit log. A filter goes in, and a page, a count or a task comes out. It only reads, and
// looks at no more rows than a question's limits allow.
package look

import (
	"cmp"
	"context"

	"github.com/notyet/notyet/store/internal/dialect"
	"github.com/notyet/notyet/store/internal/handle"
)

// Reader answers. It is a value without state of its own.
type Reader struct{ h *handle.Handle }

// New makes a Reader of a store.
func New(st handle.Source) Reader { return Reader{handle.Of(st)} }

// gather reads rows until it has limit (0: 100) to keep, has looked at most, or reads none. more:
// rows may be left.
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

type view struct {
	h      *handle.Handle
	q      dialect.Querier
	slots  []handle.Slot
	bySlot map[int]handle.Slot
}

// view runs f on one state of the database, with its slots.
func (r Reader) view(ctx context.Context, f func(v view) error) error {
	return r.h.View(ctx, func(q dialect.Querier) error {
		all, err := r.h.Slots(ctx, q)
		if err != nil {
			return err
		}
		v := view{r.h, q, all, make(map[int]handle.Slot, len(all))}
		for _, s := range all {
			v.bySlot[s.Slot] = s
		}
		return f(v)
	})
}

// open returns the first open place of each slot that has one. done alone does not say where to
// begin: it stays while nobody uses the slot.
func (v view) open(ctx context.Context) ([]handle.SlotPos, error) {
	return v.beyond(ctx, func(s handle.Slot) int64 { return s.Done })
}

// lanesOf returns the lanes of some topics, as arguments of a statement.
func (v view) lanesOf(ctx context.Context, topics []string) (lanes []any, err error) {
	key, err := v.h.LaneKeyIn(ctx, v.q)
	for _, topic := range topics {
		for _, lane := range key.Lanes(topic) {
			lanes = append(lanes, int64(lane))
		}
	}
	return lanes, err
}

func topicArgs(topics []string) (args []any) {
	for _, topic := range topics {
		args = append(args, []byte(topic))
	}
	return args
}

func (v view) beyond(ctx context.Context, offset func(handle.Slot) int64) ([]handle.SlotPos, error) {
	places := make([]handle.SlotPos, len(v.slots))
	for i, s := range v.slots {
		places[i] = handle.SlotPos{Slot: s.Slot, Pos: offset(s)}
	}
	return v.h.Beyond(ctx, v.q, places)
}
