package intake

import (
	"context"
	"database/sql"

	"github.com/notyet/notyet/internal/wrap"
	"github.com/notyet/notyet/store/internal/handle"
)

// Restart retires a source whose log has lost records, and begins another one for the partition at
// offset from. Stored tasks are delivered and events published. The new source has its own numbers,
// so a record at a reused offset makes another task. ErrFenced: the source has changed since the
// read: a scanner stored more or somebody restarted it already.
func (in Intake) Restart(ctx context.Context, src Source, from int64) (Source, error) {
	now, err := in.h.Time(ctx)
	if err != nil {
		return Source{}, err
	}
	next := src
	next.Next, next.Generation, next.Epoch, next.Proof = from, src.Generation+1, Epoch{Number: -1}, Proof{At: -1}
	err = in.h.Transact(ctx, func(tx *sql.Tx) error {
		res, err := tx.ExecContext(ctx, "UPDATE sources SET retired_at = ? WHERE src = ? AND next_offset = ? AND retired_at = 0", now.UnixMilli(), src.ID, src.Next)
		if err != nil {
			return err
		}
		if n, err := res.RowsAffected(); err != nil {
			return err
		} else if n != 1 {
			return handle.ErrFenced
		}
		if err := insertSource(ctx, tx, &next); err != nil {
			return err
		}
		_, err = in.h.Audit(ctx, tx, 1)
		return err
	})
	return next, wrap.Err(err, "restarting %s/%d at offset %d", src.Topic, src.Partition, from)
}
