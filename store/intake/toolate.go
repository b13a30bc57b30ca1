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
	err := tables.ExecIn(ctx, tx, "UPDATE tasks SET state = ? WHERE seq", slices.Compact(seqs), int(task.StateRetry))
	return wrap.Err(err, "keeping %d tasks from becoming pending again", len(seqs))
}
