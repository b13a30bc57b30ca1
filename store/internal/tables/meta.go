package tables

import (
	"context"

	"github.com/notyet/notyet/store/internal/dialect"
)

// ReadMeta returns nothing for a name without data.
func ReadMeta(ctx context.Context, q dialect.Querier, name string) ([]byte, error) {
	data, _, err := One[[]byte](ctx, q, "SELECT data FROM meta WHERE name = ?", []byte(name))
	return data, err
}
