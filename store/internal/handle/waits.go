package handle

import (
	"context"
	"database/sql"
	"fmt"
	"slices"

	"github.com/notyet/notyet/store/internal/tables"
)

// Waits gathers what is stored of tasks that wait between attempts, and of no others: most tasks never do, and their rows are written
// without it.
type Waits map[wait][]int64

type wait struct {
	idle    bool // task.Task.Idle
	snoozed int
}

// Add notes it of a row, unless it is as a new row has it.
func (w Waits) Add(seq int64, idle bool, snoozed int) {
	if idle || snoozed > 0 {
		key := wait{idle, snoozed}
		w[key] = append(w[key], seq)
	}
}

// Store writes it to the rows, which stand at their places.
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
