package handle

import (
	"cmp"
	"context"
	"database/sql"
	"fmt"
	"slices"
	"strings"

	"github.com/notyet/notyet/store/internal/tables"
	"github.com/notyet/notyet/task"
)

// Waits gathers the extra columns of tasks that wait between attempts. Most tasks never do, and
// their rows are written without them.
type Waits map[wait][]waiter

type wait struct {
	idle    bool // task.Task.Idle
	snoozed int
	failed  bool // failures are written
}

type waiter struct {
	seq      int64
	failures []byte
}

// Add notes the extra columns of a row, unless they are a new row's. Failures stay as they are if
// none are given.
func (w Waits) Add(seq int64, idle bool, snoozed int, failures []task.Note) {
	if idle || snoozed > 0 || len(failures) > 0 {
		key := wait{idle, snoozed, len(failures) > 0}
		w[key] = append(w[key], waiter{seq, task.EncodeNotes(failures...)})
	}
}

// Store writes the extra columns to the rows at their places.
func (w Waits) Store(ctx context.Context, tx *sql.Tx) error {
	for wait, rows := range w {
		set, most := "idle = 0, snoozed = ?", tables.MaxRows
		if wait.idle {
			set = "idle = pos, snoozed = ?"
		}
		if wait.failed {
			most = tables.MaxCases
		}
		slices.SortFunc(rows, func(a, b waiter) int { return cmp.Compare(a.seq, b.seq) })
		for part := range slices.Chunk(rows, most) {
			set, a, seqs := set, []any{wait.snoozed}, make([]any, len(part))
			for i, r := range part {
				seqs[i] = r.seq
				if wait.failed {
					a = append(a, r.seq, r.failures)
				}
			}
			if wait.failed {
				set += ", failures = CASE seq" + strings.Repeat(" WHEN ? THEN ?", len(part)) + " END"
			}
			if _, err := tx.ExecContext(ctx, "UPDATE tasks SET "+set+" WHERE seq IN ("+tables.Marks(len(part))+")", append(a, seqs...)...); err != nil {
				return fmt.Errorf("noting what %d tasks wait for: %w", len(rows), err)
			}
		}
	}
	return nil
}
