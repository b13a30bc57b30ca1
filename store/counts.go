package store

import (
	"context"
	"database/sql"
	"fmt"
	"slices"
	"strings"

	"github.com/notyet/notyet/store/internal/tables"
)

// countedTasks is the most tasks of a count, a share in each slot. Dispatchers stage fewer.
const countedTasks = 100_000

// Counts returns how many tasks the slots have between neighbouring bounds: in (bounds[i],
// bounds[i+1]]. Of many tasks it counts the nearest of each slot. It reads the index only.
func (s *Store) Counts(ctx context.Context, slots []int, bounds []int64) ([]int64, error) {
	return s.counts(ctx, slots, bounds, countedTasks)
}

func (s *Store) counts(ctx context.Context, slots []int, bounds []int64, most int) ([]int64, error) {
	out := make([]int64, max(len(bounds)-1, 0))
	if len(out) == 0 || len(slots) == 0 {
		return out, nil
	}
	type grain struct {
		n     int
		tasks int64
	}
	var which []any
	for i := range out {
		which = append(which, bounds[i+1], i)
	}
	for part := range slices.Chunk(slots, 100) {
		a := slices.Clone(which)
		for _, slot := range part {
			a = append(a, slot, bounds[0], bounds[len(bounds)-1], most/len(slots)+1)
		}
		var lines strings.Builder
		for i := range part {
			if i > 0 {
				lines.WriteString(" UNION ALL ")
			}
			fmt.Fprintf(&lines, "SELECT pos FROM (SELECT pos FROM tasks WHERE slot = ? AND pos > ? AND pos <= ? ORDER BY pos LIMIT ?) AS line%d", i)
		}
		rows, err := tables.Fetch(ctx, s.db, func(r *sql.Rows, g *grain) error { return r.Scan(&g.n, &g.tasks) },
			"SELECT CASE"+strings.Repeat(" WHEN pos <= ? THEN ?", len(out))+" END AS grain, COUNT(*) FROM ("+lines.String()+") AS near GROUP BY grain", a...)
		if err != nil {
			return nil, fmt.Errorf("counting the next tasks of %d slots: %w", len(slots), err)
		}
		for _, g := range rows {
			out[g.n] += g.tasks
		}
	}
	return out, nil
}
