package store

import (
	"context"
	"database/sql"
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/require"
)

// A transaction whose context has ended is not committed: SQLite's driver answers "done" to a statement that it left out for that.
func TestEndedTransactionsAreNotCommitted(t *testing.T) {
	each(t, func(t *testing.T, s *fixture) {
		ctx, cancel := context.WithCancel(s.ctx)
		err := s.transact(ctx, func(tx *sql.Tx) error {
			_, err := tx.ExecContext(ctx, "UPDATE slots SET claimed = 5")
			cancel()
			return err
		})
		require.ErrorIs(t, err, context.Canceled)
		slots, err := s.Slots(s.ctx)
		require.NoError(t, err)
		require.Zero(t, slots[0].Claimed)
	})
}

// endsSoon is a context that ends once it was looked at so often: behind the checks of database/sql, before those of the driver.
type endsSoon struct {
	context.Context
	looks, after int32
	never, ended chan struct{}
}

func (c *endsSoon) Done() <-chan struct{} {
	if atomic.AddInt32(&c.looks, 1) > c.after {
		return c.ended
	}
	return c.never
}

func (c *endsSoon) Err() error {
	if atomic.LoadInt32(&c.looks) > c.after {
		return context.Canceled
	}
	return nil
}

// What a statement by itself says that it did, it did, whenever its context ended.
func TestEndedStatementsAreNotDone(t *testing.T) {
	each(t, func(t *testing.T, s *fixture) {
		ended := make(chan struct{})
		close(ended)
		for n := range int64(500) {
			ctx := &endsSoon{Context: s.ctx, after: int32(n % 10), never: make(chan struct{}), ended: ended}
			if _, err := s.exec(ctx, "UPDATE slots SET claimed = ?", n+1); err != nil {
				continue
			}
			slots, err := s.Slots(s.ctx)
			require.NoError(t, err)
			require.Equal(t, n+1, slots[0].Claimed)
		}
	})
}
