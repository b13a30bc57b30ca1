package handle

import (
	"context"
	"database/sql"

	"github.com/notyet/notyet/store/internal/tables"
)

func EnsureMeta(ctx context.Context, tx *sql.Tx, name []byte, value int64) error {
	var n int
	if err := tx.QueryRowContext(ctx, "SELECT COUNT(*) FROM meta WHERE name = ?", name).Scan(&n); err != nil || n > 0 {
		return err
	}
	_, err := tx.ExecContext(ctx, "INSERT INTO meta (name, value) VALUES (?, ?)", name, value) // a second one is a duplicate: tried again
	return err
}

// KeepMeta stores data under a name without any, and returns the name's data.
func (h *Handle) KeepMeta(ctx context.Context, name string, data []byte) (kept []byte, err error) {
	err = h.Transact(ctx, func(tx *sql.Tx) error {
		if kept, err = tables.ReadMeta(ctx, tx, name); err != nil || len(kept) > 0 {
			return err
		}
		kept = data
		res, err := tx.ExecContext(ctx, "UPDATE meta SET data = ? WHERE name = ? AND COALESCE(LENGTH(data), 0) = 0", data, []byte(name)) // not what another process has stored meanwhile
		if err != nil {
			return err
		}
		if n, err := res.RowsAffected(); err != nil || n > 0 {
			return err
		}
		_, err = tx.ExecContext(ctx, "INSERT INTO meta (name, value, data) VALUES (?, 0, ?)", []byte(name), data) // a second one is a duplicate: tried again
		return err
	})
	return kept, err
}
