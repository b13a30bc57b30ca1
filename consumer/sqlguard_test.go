package consumer_test

import (
	"context"
	"database/sql"
	"errors"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	_ "github.com/glebarez/go-sqlite"
	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/notyet/notyet/consumer"
	"github.com/notyet/notyet/schemas"
	"github.com/notyet/notyet/test/mysqltest"
)

// onDatabases runs a test on SQLite, and on MySQL if the environment names one.
func onDatabases(t *testing.T, f func(t *testing.T, db *sql.DB, g *consumer.SQLGuard)) {
	run := func(driver, dsn string, c consumer.SQLGuardConfig) func(t *testing.T) {
		return func(t *testing.T) {
			db, err := sql.Open(driver, dsn)
			require.NoError(t, err)
			t.Cleanup(func() { _ = db.Close() })
			g, err := consumer.NewSQLGuard(db, c)
			require.NoError(t, err)
			require.NoError(t, g.Create(t.Context()))
			require.NoError(t, g.Create(t.Context()), "again")
			_, err = db.Exec("CREATE TABLE effects (v VARCHAR(20))")
			require.NoError(t, err)
			f(t, db, g)
		}
	}
	t.Run("sqlite", run("sqlite", filepath.Join(t.TempDir(), "x.db")+"?_pragma=busy_timeout(10000)&_pragma=journal_mode(wal)",
		consumer.SQLGuardConfig{Dialect: consumer.SQLite}))
	t.Run("mysql", func(t *testing.T) { run("mysql", mysqltest.Fresh(t), consumer.SQLGuardConfig{})(t) })
}

func delivered(key, value string) consumer.Message {
	return consumer.Message{Record: &kgo.Record{Value: []byte(value)}, Delivery: &schemas.Delivery{ID: "x", Attempt: 1, Key: key}}
}

func effects(t *testing.T, db *sql.DB) (n int) {
	t.Helper()
	require.NoError(t, db.QueryRow("SELECT COUNT(*) FROM effects").Scan(&n))
	return n
}

func insertEffect(ctx context.Context, tx *sql.Tx, m consumer.Message) error {
	_, err := tx.ExecContext(ctx, "INSERT INTO effects (v) VALUES (?)", string(m.Record.Value))
	return err
}

func TestSQLGuardRemembers(t *testing.T) {
	onDatabases(t, func(t *testing.T, _ *sql.DB, g *consumer.SQLGuard) {
		ctx := t.Context()
		seen := func(key string) bool {
			s, err := g.Seen(ctx, key)
			require.NoError(t, err)
			return s
		}
		require.False(t, seen("AbC"))
		require.NoError(t, g.Done(ctx, "AbC"))
		require.NoError(t, g.Done(ctx, "AbC"), "again")
		require.True(t, seen("AbC"))
		for _, other := range []string{"abc", "ABC", "AbC ", "AbC\x00", "007", "7"} {
			require.False(t, seen(other), "%q is another key", other)
			require.NoError(t, g.Done(ctx, other))
			require.True(t, seen(other))
		}
		longest := strings.Repeat("k", 255)
		require.NoError(t, g.Done(ctx, longest))
		require.ErrorContains(t, g.Done(ctx, longest+"k"), "256 bytes", "it would be cut, and taken for the one before")
		require.ErrorContains(t, g.Done(ctx, ""), "0 bytes")

		n, err := g.Purge(ctx, time.Now().Add(-time.Hour))
		require.NoError(t, err)
		require.Zero(t, n)
		n, err = g.Purge(ctx, time.Now().Add(time.Hour))
		require.NoError(t, err)
		require.EqualValues(t, 8, n)
		require.False(t, seen("AbC"))
	})
}

// TestSQLGuardInTx: effect and mark are both stored or neither, for a success, an error and a
// panic.
func TestSQLGuardInTx(t *testing.T) {
	onDatabases(t, func(t *testing.T, db *sql.DB, g *consumer.SQLGuard) {
		ctx := t.Context()
		after := func(outcome func() error) consumer.Handler {
			return g.InTx(func(ctx context.Context, tx *sql.Tx, m consumer.Message) error {
				require.NoError(t, insertEffect(ctx, tx, m))
				return outcome()
			})
		}
		busy := errors.New("busy")
		require.ErrorIs(t, after(func() error { return busy })(ctx, delivered("k", "v")), busy)
		require.Panics(t, func() { _ = after(func() error { panic("oh") })(ctx, delivered("k", "v")) })
		require.Zero(t, effects(t, db), "rolled back")

		ok := after(func() error { return nil })
		require.NoError(t, ok(ctx, delivered("k", "v")))
		require.NoError(t, ok(ctx, delivered("k", "v")), "a copy")
		require.Equal(t, 1, effects(t, db))
		require.NoError(t, ok(ctx, delivered("other", "v")))
		require.Equal(t, 2, effects(t, db))

		foreign := consumer.Message{Record: &kgo.Record{Value: []byte("v")}}
		require.NoError(t, ok(ctx, foreign))
		require.NoError(t, ok(ctx, foreign))
		require.Equal(t, 4, effects(t, db), "without a key every copy is handled")
	})
}

// TestSQLGuardConcurrently: of copies handled at the same time one takes effect; the others wait
// for its outcome.
func TestSQLGuardConcurrently(t *testing.T) {
	onDatabases(t, func(t *testing.T, db *sql.DB, g *consumer.SQLGuard) {
		handle := g.InTx(insertEffect)
		var group sync.WaitGroup
		errs := make([]error, 8)
		for i := range errs {
			group.Go(func() { errs[i] = handle(t.Context(), delivered("k", "v")) })
		}
		group.Wait()
		require.NoError(t, errors.Join(errs...))
		require.Equal(t, 1, effects(t, db))
	})
}

// TestSQLGuardUnknownCommit: after a commit whose answer is lost, the effect happens exactly once.
func TestSQLGuardUnknownCommit(t *testing.T) {
	onDatabases(t, func(t *testing.T, db *sql.DB, g *consumer.SQLGuard) {
		for key, took := range map[string]bool{"took effect": true, "did not": false} {
			calls := 0
			err := g.InTx(func(ctx context.Context, tx *sql.Tx, m consumer.Message) error {
				calls++
				if err := insertEffect(ctx, tx, m); err != nil || calls > 1 {
					return err
				}
				if took {
					return tx.Commit() // so that InTx's own commit fails, as after a lost answer
				}
				return tx.Rollback()
			})(t.Context(), delivered(key, "v"))
			require.NoError(t, err)
			require.Equal(t, map[bool]int{true: 1, false: 2}[took], calls)
		}
		require.Equal(t, 2, effects(t, db), "one of each")
	})
}

func TestNewSQLGuardRefuses(t *testing.T) {
	for _, table := range []string{"a b", "x;DROP TABLE y", "`x`", "1x", "a.b.c"} {
		_, err := consumer.NewSQLGuard(nil, consumer.SQLGuardConfig{Table: table})
		require.ErrorContains(t, err, "not a table's name")
	}
	_, err := consumer.NewSQLGuard(nil, consumer.SQLGuardConfig{Table: "app.handled"})
	require.NoError(t, err)
	_, err = consumer.NewSQLGuard(nil, consumer.SQLGuardConfig{Dialect: 9})
	require.ErrorContains(t, err, "dialect 9")
}

// TestInTxThroughConsumer: copies of one delivery in the topic have one effect, and each is
// reported ok.
func TestInTxThroughConsumer(t *testing.T) {
	onDatabases(t, func(t *testing.T, db *sql.DB, g *consumer.SQLGuard) {
		f := newFake(t)
		f.deliver("a=1", "b=2")
		f.deliver("a=1", "b=2")
		f.run(consumer.Config{}, g.InTx(insertEffect))
		f.awaitCommitted(4)
		require.Equal(t, 2, effects(t, db))
		for id, r := range f.reports(2) {
			require.Equal(t, schemas.StatusOK, r.Status, id)
		}
	})
}
