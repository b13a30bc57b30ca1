package e2e

import (
	"context"
	"database/sql"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// backup is the content of every table at one moment, taken while others work.
type backup map[string]*rowsOf

type rowsOf struct {
	columns []string
	rows    [][]any
}

var tables = []string{"tasks", "slots", "sources", "outbox", "waiting", "dead_letters", "meta", "timers", "tags", "unknown_targets", "targets", "homes", "cuts", "leaving"}

// open opens the database that the processes use. The store's import has registered the drivers.
func (s *stack) open() *sql.DB {
	driver, dsn := "mysql", s.dsn
	if path, ok := strings.CutPrefix(s.dsn, "sqlite:"); ok {
		driver, dsn = "sqlite", path+"?_pragma=busy_timeout(20000)"
	}
	db, err := sql.Open(driver, dsn)
	require.NoError(s.t, err)
	s.t.Cleanup(func() { _ = db.Close() })
	return db
}

func (s *stack) backUp() backup {
	// A snapshot: REPEATABLE READ on MySQL, a deferred transaction on SQLite.
	tx, err := s.open().BeginTx(s.t.Context(), &sql.TxOptions{ReadOnly: true})
	require.NoError(s.t, err)
	defer func() { require.NoError(s.t, tx.Rollback()) }()
	out := backup{}
	for _, table := range tables {
		out[table] = readTable(s.t, tx, table)
	}
	return out
}

func readTable(t *testing.T, tx *sql.Tx, table string) *rowsOf {
	rows, err := tx.Query("SELECT * FROM " + table)
	require.NoError(t, err)
	defer rows.Close()
	out := &rowsOf{}
	out.columns, err = rows.Columns()
	require.NoError(t, err)
	for rows.Next() {
		cells, into := make([]any, len(out.columns)), make([]any, len(out.columns))
		for i := range cells {
			into[i] = &cells[i]
		}
		require.NoError(t, rows.Scan(into...))
		for i, cell := range cells {
			if b, ok := cell.([]byte); ok && b == nil { // an empty one, which is not NULL
				cells[i] = []byte{}
			}
		}
		out.rows = append(out.rows, cells)
	}
	require.NoError(t, rows.Err())
	return out
}

// restore replaces the database's content by the backup. Nobody may be at work.
func (s *stack) restore(b backup) {
	tx, err := s.open().BeginTx(context.Background(), nil)
	require.NoError(s.t, err)
	for _, table := range tables {
		_, err := tx.Exec("DELETE FROM " + table)
		require.NoError(s.t, err)
		content := b[table]
		row := ",(" + strings.Repeat("?,", len(content.columns)-1) + "?)"
		for part := range slices.Chunk(content.rows, 200) {
			var args []any
			for _, cells := range part {
				args = append(args, cells...)
			}
			_, err := tx.Exec(fmt.Sprintf("INSERT INTO %s (%s) VALUES %s", table, strings.Join(content.columns, ","), strings.Repeat(row, len(part))[1:]), args...)
			require.NoError(s.t, err)
		}
	}
	require.NoError(s.t, tx.Commit())
}
