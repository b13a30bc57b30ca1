package line

import (
	"context"
	"database/sql"

	"github.com/notyet/notyet/internal/wrap"
)

// epochLeap is how many epochs NextEpoch skips in a new life of the database: more than it forgot.
const epochLeap = 1_000_000

// NextEpoch allocates a fencing epoch. Each call returns a higher one, whatever else was lost or
// rebuilt. After the database was set back, the epoch exceeds the slots' epochs, because owners
// have taken the slots anew, and the forgotten ones: see store/life.go.
func (l Line) NextEpoch(ctx context.Context) (int64, error) {
	var epoch int64
	name := []byte("epoch")
	err := l.h.Transact(ctx, func(tx *sql.Tx) error {
		var taken int64
		if err := tx.QueryRowContext(ctx, "SELECT COALESCE(MAX(epoch), 0) FROM slots").Scan(&taken); err != nil {
			return err
		}
		// MySQL assigns from left to right. An older program notes no life.
		res, err := tx.ExecContext(ctx, "UPDATE meta SET value = CASE WHEN value < ? THEN ? ELSE value END + CASE WHEN LENGTH(data) = 0 OR data = "+l.h.Life+" THEN 1 ELSE ? END, data = "+l.h.Life+" WHERE name = ?", taken, taken, epochLeap, name)
		if err != nil {
			return err
		}
		if n, err := res.RowsAffected(); err != nil {
			return err
		} else if n == 0 {
			if _, err := tx.ExecContext(ctx, "INSERT INTO meta (name, value, data) VALUES (?, ?, "+l.h.Life+")", name, taken+1); err != nil {
				return err
			}
		}
		return tx.QueryRowContext(ctx, "SELECT value FROM meta WHERE name = ?", name).Scan(&epoch)
	})
	return epoch, wrap.Err(err, "allocating an epoch")
}
