package dialect

import (
	"context"
	"database/sql"
	"strings"
	"time"

	"github.com/pressly/goose/v3"
	"github.com/pressly/goose/v3/database"

	"github.com/notyet/notyet/internal/machine"
)

// SQLite is embedded: it has this machine's clock, and write transactions are serial from the first
// statement on. Memory keeps it in memory.
type SQLite struct{ Memory bool }

// Lock: serial transactions need no clause.
func (SQLite) Lock(string) string { return "" }

func (SQLite) Use(table, index string) string {
	if table != "tasks" || index != "line" { // the one index whose name here has no table in it
		index = table + "_" + index
	}
	return table + " INDEXED BY " + index
}

func (SQLite) Upsert(key string, columns ...string) string {
	set := make([]string, len(columns))
	for i, c := range columns {
		set[i] = c + " = excluded." + c
	}
	return " ON CONFLICT (" + key + ") DO UPDATE SET " + strings.Join(set, ", ")
}

func (SQLite) Keep(key, _ string) string { return " ON CONFLICT (" + key + ") DO NOTHING" }

func (SQLite) Quotient(a, b string) string { return a + " / " + b }

func (SQLite) DeleteOldest(table, column, key string) string {
	return "DELETE FROM " + table + " WHERE (" + key + ") IN (SELECT " + key + " FROM " + table + " WHERE " + column + " < ? ORDER BY " + column + " LIMIT ?)"
}

func (SQLite) Measure(table, bytes string) string {
	return "SELECT COUNT(*), COALESCE(SUM(" + bytes + "), 0) FROM " + table
}

func (SQLite) Millis(ctx context.Context, now Clock) (string, []any, error) {
	t, err := now(ctx)
	if err != nil {
		return "", nil, err
	}
	return "?", []any{t.UnixMilli()}, nil
}

// InsertRows is small: the driver looks through all values for each of them.
func (SQLite) InsertRows(n int) int { return min(n, 32) }

// Prepares: the driver parses the text each time anyway.
func (SQLite) Prepares() bool { return false }

func (SQLite) Done(ctx context.Context, err error) error {
	if err == nil {
		err = ctx.Err()
	}
	return err
}

func (SQLite) Time(context.Context, Querier) (time.Time, error) { return machine.Now().Wall(), nil }

// Moment is slewed as the machine's clock is.
func (SQLite) Moment(look func() machine.Instant) machine.Instant {
	return machine.Instant{Time: look().Time}
}

func (s SQLite) Pool(db *sql.DB, most int, _ time.Duration) {
	if s.Memory {
		most = 1 // each connection would have a database of its own
	}
	db.SetMaxOpenConns(most)
	db.SetMaxIdleConns(most)
}

func (SQLite) CheckPrimary(context.Context, Querier) error { return nil }

// CheckRowLocks: there are no locks on rows.
func (SQLite) CheckRowLocks(context.Context, *sql.DB, Probe) error { return nil }

func (SQLite) Examine(_ context.Context, _ Querier, _ Clock, out *Examined) error {
	out.Embedded = true
	return nil
}

func (SQLite) Migrations() (goose.Dialect, string, []goose.ProviderOption) {
	return goose.DialectSQLite3, "migrations/sqlite", nil
}

// MakeVersions: goose makes its table in one transaction.
func (SQLite) MakeVersions(context.Context, *sql.DB, database.Store) error { return nil }

// Made tells whether a migration failed because it is made by now, or goose's own table is. Nothing
// locks beyond a migration's own transaction. If another process makes the same migration at the
// same time, this one fails as a whole.
func (SQLite) Made(ctx context.Context, db *sql.DB, versions database.Store, failed error) bool {
	partial, ok := partialError(failed)
	if !ok {
		return strings.Contains(failed.Error(), "already exists")
	}
	latest, err := versions.GetLatestVersion(ctx, db)
	return err == nil && latest >= partial.Failed.Source.Version
}

func (SQLite) NoTable(err error) bool {
	return err != nil && strings.Contains(err.Error(), "no such table")
}
