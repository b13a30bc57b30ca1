package store

import (
	"context"
	"crypto/rand"
	"database/sql"
	"encoding/binary"
	"fmt"
)

// Secret returns 128 random bits that all processes of this installation have in common and nobody else
// knows. Whoever asks first makes them.
func (s *Store) Secret(ctx context.Context, name string) (secret [16]byte, err error) {
	err = s.transact(ctx, func(tx *sql.Tx) error {
		for half := range 2 {
			key, random := fmt.Append(nil, name, ".", half), make([]byte, 8)
			_, _ = rand.Read(random)                                                                 // it never fails
			if err := ensureMeta(ctx, tx, key, int64(binary.BigEndian.Uint64(random))); err != nil { //nolint:gosec // all bits count
				return err
			}
			var value int64
			if err := tx.QueryRowContext(ctx, "SELECT value FROM meta WHERE name = ?", key).Scan(&value); err != nil {
				return err
			}
			binary.BigEndian.PutUint64(secret[8*half:], uint64(value)) //nolint:gosec // likewise
		}
		return nil
	})
	if err != nil {
		return secret, fmt.Errorf("reading the secret %s: %w", name, err)
	}
	return secret, nil
}
