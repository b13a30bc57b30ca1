package handle

import (
	"cmp"
	"context"
	"database/sql"
	"slices"
	"strings"

	"github.com/notyet/notyet/store/internal/dialect"
	"github.com/notyet/notyet/store/internal/tables"
	"github.com/notyet/notyet/task"
)

// HeldPlace is a place among a target's held tasks. The zero value is before all.
type HeldPlace struct{ Pos, Seq int64 }

// Compare orders places.
func (p HeldPlace) Compare(o HeldPlace) int {
	return cmp.Or(cmp.Compare(p.Pos, o.Pos), cmp.Compare(p.Seq, o.Seq))
}

// HeldTask is a task that is held.
type HeldTask struct {
	HeldPlace
	Slot    int
	Lane    task.Lane
	Attempt int
	Topic   string // another one shares the lane if it is not the one that was asked for
}

// HeldTasks returns up to n held tasks behind a place; nil: from the first on. Each lane of a topic
// is read in two ranges of the index: the rest of the last page's final place, and all beyond. One
// condition for both would read that place again. One statement reads all, because a dispatcher may
// have many targets to look behind.
func (h *Handle) HeldTasks(ctx context.Context, q dialect.Querier, topic string, after *HeldPlace, n int) ([]HeldTask, error) {
	key, err := h.LaneKeyIn(ctx, q)
	if err != nil {
		return nil, err
	}
	from := HeldPlace{Pos: task.Held(0) - 1}
	if after != nil && after.Compare(from) > 0 {
		from = *after
	}
	var parts []string
	var a []any
	for _, lane := range key.Lanes(topic) {
		parts = append(parts, heldPart("lane = ? AND pos = ? AND seq > ? ORDER BY seq"), heldPart("lane = ? AND pos > ? ORDER BY pos, seq"))
		a = append(a, int64(lane), from.Pos, from.Seq, n, int64(lane), from.Pos, n)
	}
	out, err := tables.Fetch(ctx, q, func(r *sql.Rows, t *HeldTask) error {
		return r.Scan(&t.Seq, &t.Pos, &t.Slot, &t.Lane, &t.Attempt, &t.Topic)
	}, strings.Join(parts, " UNION ALL "), a...)
	if err != nil {
		return nil, err
	}
	slices.SortFunc(out, func(a, b HeldTask) int { return a.Compare(b.HeldPlace) })
	return out[:min(n, len(out))], nil
}

// heldPart reads one range as a part of a union. SQLite orders only a part in a table of its own.
func heldPart(where string) string {
	return "SELECT * FROM (SELECT seq, pos, slot, lane, attempt, topic FROM tasks WHERE " + where + " LIMIT ?) AS part"
}
