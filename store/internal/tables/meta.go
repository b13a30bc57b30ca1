package tables

import (
	"context"
	"database/sql"

	"github.com/notyet/notyet/store/internal/dialect"
)

// ReadMeta returns nothing for a name without data.
func ReadMeta(ctx context.Context, q dialect.Querier, name string) ([]byte, error) {
	rows, err := Fetch(ctx, q, func(r *sql.Rows, data *[]byte) error { return r.Scan(data) }, "SELECT data FROM meta WHERE name = ?", []byte(name))
	if err != nil || len(rows) == 0 {
		return nil, err
	}
	return rows[0], nil
}
