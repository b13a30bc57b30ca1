package outbox

import (
	"database/sql"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"go.uber.org/zap"

	"github.com/notyet/notyet/schemas"
	"github.com/notyet/notyet/store"
	"github.com/notyet/notyet/store/internal/tables"
	"github.com/notyet/notyet/test/mysqltest"
)

// However much an outage of the results topic has left, a look at it reads what it returns.
func TestPendingEventsAreNotSorted(t *testing.T) {
	t.Run("sqlite", func(t *testing.T) {
		notSorted(t, "sqlite::memory:", "EXPLAIN QUERY PLAN ", func(r *sql.Rows, line *string) error {
			var id, parent, unused int
			return r.Scan(&id, &parent, &unused, line)
		})
	})
	t.Run("mysql", func(t *testing.T) {
		notSorted(t, mysqltest.Fresh(t), "EXPLAIN FORMAT=JSON ", func(r *sql.Rows, line *string) error { return r.Scan(line) })
	})
}

func notSorted(t *testing.T, dsn, explain string, scan func(*sql.Rows, *string) error) {
	ctx := t.Context()
	st, err := store.Open(ctx, store.Config{DSN: dsn}, zap.NewNop())
	require.NoError(t, err)
	defer func() { require.NoError(t, st.Close()) }()
	require.NoError(t, st.Migrate(ctx, 1))
	o := New(st)
	for i := range 50 {
		_, err := o.Store(ctx, []schemas.Event{{ID: "a"}}, int64(i))
		require.NoError(t, err)
	}
	lines, err := tables.Fetch(ctx, o.h.Reads(), scan, explain+pending(2), TransitionSource, TransitionSource+1, 10)
	require.NoError(t, err)
	plan := strings.Join(lines, "\n")
	require.Contains(t, plan, "outbox")
	for _, sorted := range []string{"TEMP B-TREE", `"filesort": {`, `"using_filesort": true`} { // of SQLite, MariaDB, MySQL
		require.NotContains(t, plan, sorted)
	}
}
