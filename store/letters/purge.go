package letters

import (
	"context"
	"database/sql"
	"fmt"

	"github.com/notyet/notyet/store/internal/handle"
	"github.com/notyet/notyet/store/internal/tables"
)

// Last is the highest id of a dead letter; 0: there are none. A run over many pages ends at
// that id, so it does not meet tasks that die while it runs.
func (ls Letters) Last(ctx context.Context) (int64, error) {
	var id sql.NullInt64
	if err := ls.h.Reads().QueryRowContext(ctx, "SELECT MAX(id) FROM dead_letters").Scan(&id); err != nil {
		return 0, fmt.Errorf("looking for the last dead letter: %w", err)
	}
	return id.Int64, nil
}

// Purge deletes the first f.Limit dead letters (0: 1000) that the filter selects, and returns
// how many those were and the id after which the next call goes on; 0 says that none are left. A
// letter that is replayed meanwhile stays, unless f.Replayed. The rows of dead tasks stay too: a
// cancel is still told that they are dead, as long as they are remembered.
func (ls Letters) Purge(ctx context.Context, f Filter) (deleted, next int64, err error) {
	if f.Limit <= 0 {
		f.Limit = tables.MaxRows
	}
	page, err := ls.Select(ctx, f)
	if err != nil {
		return 0, 0, err
	}
	var entry int64 // in the audit log
	err = tables.Chunks(page.IDs, func(part []int64) error {
		var n int64
		var written int64
		err := ls.h.Transact(ctx, func(tx *sql.Tx) (err error) {
			if n, err = purgeIDs(ctx, tx, part, f.Replayed); err != nil || n == 0 {
				return err
			}
			if entry > 0 {
				return handle.AuditMore(ctx, tx, entry, n)
			}
			written, err = ls.h.Audit(ctx, tx, n)
			return err
		})
		if err != nil {
			return fmt.Errorf("purging %d dead letters: %w", len(part), err)
		}
		deleted += n
		entry = max(entry, written)
		return nil
	})
	if err != nil {
		return deleted, 0, err
	}
	return deleted, page.Next, nil
}

// purgeIDs deletes letters, and spares those that were replayed meanwhile unless replayed is true.
func purgeIDs(ctx context.Context, tx *sql.Tx, ids []int64, replayed bool) (int64, error) {
	spared := ""
	if !replayed {
		spared = " AND replayed_at = 0"
	}
	res, err := tx.ExecContext(ctx, "DELETE FROM dead_letters WHERE id IN ("+tables.Marks(len(ids))+")"+spared, tables.Args(ids)...)
	if err != nil {
		return 0, err
	}
	return res.RowsAffected()
}
