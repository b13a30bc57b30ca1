package handle

import (
	"context"
	"database/sql"
)

func EnsureMeta(ctx context.Context, tx *sql.Tx, name []byte, value int64) error {
	var n int
	if err := tx.QueryRowContext(ctx, "SELECT COUNT(*) FROM meta WHERE name = ?", name).Scan(&n); err != nil || n > 0 {
		return err
	}
	_, err := tx.ExecContext(ctx, "INSERT INTO meta (name, value) VALUES (?, ?)", name, value) // a second one is a duplicate: tried again
	return err
}
