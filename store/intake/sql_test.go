package intake

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/notyet/notyet/store/internal/dialect"
	"github.com/notyet/notyet/store/internal/handle"
)

// A transaction whose context has ended is not committed: SQLite's driver answers "done" to a statement that it left out for that.
func TestEndedTransactionsAreNotCommitted(t *testing.T) {
	each(t, func(t *testing.T, s *fixture) {
		ctx, cancel := context.WithCancel(s.ctx)
		err := s.h.Transact(ctx, func(tx *sql.Tx) error {
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

// leavingOut is what SQLite's driver does when the context of a statement ends just before it: it leaves it out, and answers that it was done.
type leavingOut struct{ end context.CancelFunc }

func (l *leavingOut) Connect(context.Context) (driver.Conn, error) { return l, nil }
func (l *leavingOut) Driver() driver.Driver                        { return nil }
func (l *leavingOut) Prepare(string) (driver.Stmt, error)          { return nil, driver.ErrSkip }
func (l *leavingOut) Close() error                                 { return nil }
func (l *leavingOut) Begin() (driver.Tx, error)                    { return nil, driver.ErrSkip }

func (l *leavingOut) ExecContext(context.Context, string, []driver.NamedValue) (driver.Result, error) {
	l.end()
	return driver.RowsAffected(1), nil
}

// What a statement by itself says that it did, it did, whenever its context ended.
func TestEndedStatementsAreNotDone(t *testing.T) {
	ctx, end := context.WithCancel(t.Context())
	db := sql.OpenDB(&leavingOut{end})
	t.Cleanup(func() { _ = db.Close() })
	_, err := handle.New(handle.Config{DB: db, Dialect: dialect.SQLite{}}).Exec(ctx, "UPDATE slots SET claimed = 5")
	require.ErrorIs(t, err, context.Canceled)
}
