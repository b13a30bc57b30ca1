package intake

import (
	"context"
	"database/sql"
	"slices"

	"github.com/notyet/notyet/internal/wrap"
	"github.com/notyet/notyet/store/internal/tables"
	"github.com/notyet/notyet/task"
)

// keepTaken keeps tasks in flight from becoming pending again: callers were answered "too late".
func keepTaken(ctx context.Context, tx *sql.Tx, seqs []int64) error {
	slices.Sort(seqs)
	return tables.Chunks(slices.Compact(seqs), func(part []int64) error {
		_, err := tx.ExecContext(ctx, "UPDATE tasks SET state = ? WHERE seq IN ("+tables.Marks(len(part))+")", append([]any{int(task.StateRetry)}, tables.Args(part)...)...)
		return wrap.Err(err, "keeping %d tasks from becoming pending again", len(part))
	})
}
