package consumer_test

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/notyet/notyet/consumer"
)

// leavingOut is what a driver of SQLite does when the context of a statement ends just before: it leaves the statement out, and answers
// that it was done.
type leavingOut struct{ end context.CancelFunc }

func (l *leavingOut) Connect(context.Context) (driver.Conn, error) { return l, nil }
func (l *leavingOut) Driver() driver.Driver                        { return nil }
func (l *leavingOut) Prepare(string) (driver.Stmt, error)          { return nil, driver.ErrSkip }
func (l *leavingOut) Close() error                                 { return nil }
func (l *leavingOut) Begin() (driver.Tx, error)                    { return l, nil }
func (l *leavingOut) Commit() error                                { return nil }
func (l *leavingOut) Rollback() error                              { return nil }

func (l *leavingOut) ExecContext(context.Context, string, []driver.NamedValue) (driver.Result, error) {
	l.end()
	return driver.RowsAffected(0), nil // SQLite's count of the statement before
}

// What was left out is neither this consumer's mark nor somebody else's, after which the delivery would count as handled.
func TestGuardWhoseStatementIsLeftOut(t *testing.T) {
	for name, mark := range map[string]func(ctx context.Context, db *sql.DB, g *consumer.SQLGuard) error{
		"Mark": func(ctx context.Context, db *sql.DB, g *consumer.SQLGuard) error {
			tx, err := db.BeginTx(context.WithoutCancel(ctx), nil)
			require.NoError(t, err)
			defer func() { _ = tx.Rollback() }()
			_, err = g.Mark(ctx, tx, "key")
			return err
		},
		"Done": func(ctx context.Context, _ *sql.DB, g *consumer.SQLGuard) error { return g.Done(ctx, "key") },
		"InTx": func(ctx context.Context, _ *sql.DB, g *consumer.SQLGuard) error {
			return g.InTx(func(context.Context, *sql.Tx, consumer.Message) error { return nil })(ctx, delivered("key", "a"))
		},
	} {
		t.Run(name, func(t *testing.T) {
			ctx, end := context.WithCancel(t.Context())
			db := sql.OpenDB(&leavingOut{end})
			t.Cleanup(func() { _ = db.Close() })
			g, err := consumer.NewSQLGuard(db, consumer.SQLGuardConfig{Dialect: consumer.SQLite})
			require.NoError(t, err)
			require.ErrorIs(t, mark(ctx, db, g), context.Canceled)
		})
	}
}
