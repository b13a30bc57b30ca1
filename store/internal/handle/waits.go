package handle

import (
	"context"
	"database/sql"
	"fmt"
	"slices"

	"github.com/notyet/notyet/store/internal/tables"
)

// Waits gathers the extra columns of tasks that wait between attempts. Most tasks never do, and
// their rows are written without them.
type Waits map[wait][]int64

type wait struct {
	idle    bool // task.Task.Idle
	snoozed int
}

// Add notes the extra columns of a row, unless they are a new row's.
func (w Waits) Add(seq int64, idle bool, snoozed int) {
	if idle || snoozed > 0 {
		key := wait{idle, snoozed}
		w[key] = append(w[key], seq)
	}
}

// Store writes the extra columns to the rows at their places.
func (w Waits) Store(ctx context.Context, tx *sql.Tx) error {
	for wait, seqs := range w {
		idle := "0"
		if wait.idle {
			idle = "pos"
		}
		slices.Sort(seqs)
		err := tables.Chunks(seqs, func(part []int64) error {
			_, err := tx.ExecContext(ctx, "UPDATE tasks SET idle = "+idle+", snoozed = ? WHERE seq IN ("+tables.Marks(len(part))+")", append([]any{wait.snoozed}, tables.Args(part)...)...)
			return err
		})
		if err != nil {
			return fmt.Errorf("noting what %d tasks wait for: %w", len(seqs), err)
		}
	}
	return nil
}
