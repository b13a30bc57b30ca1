// Package dialect holds the differences between SQLite and MySQL (or MariaDB). A statement of the
// store goes in with a question, such as how to insert or update a row; the words of the database
// come out. No other package asks which of the two it talks to.
package dialect

import (
	"context"
	"database/sql"
	"time"

	"github.com/pressly/goose/v3"
	"github.com/pressly/goose/v3/database"

	"github.com/notyet/notyet/internal/machine"
)

// Querier is a connection, or a transaction.
type Querier interface {
	QueryContext(context.Context, string, ...any) (*sql.Rows, error)
	QueryRowContext(context.Context, string, ...any) *sql.Row
}

// Clock asks the database for its time.
type Clock func(ctx context.Context) (time.Time, error)

// Dialect answers for one kind of database: SQLite or MySQL. Both are values without state, and
// safe for use by several goroutines.
type Dialect interface {
	Words
	Server
	Versions
}

// Words are parts of statements.
type Words interface {
	// Lock returns a lock clause, or "" where no statement needs one.
	Lock(clause string) string
	// Use names a table and the index to read. Left to choose, a server may walk all rows.
	Use(table, index string) string
	// Upsert lets an INSERT replace the columns of the row with the key.
	Upsert(key string, columns ...string) string
	// Keep lets an INSERT leave the row with the key alone. column is one of the key's.
	Keep(key, column string) string
	// Quotient divides whole numbers.
	Quotient(a, b string) string
	// DeleteOldest deletes rows with the lowest values of a column, below a value (the first
	// argument) and at most so many (the second). The column comes first in the table's key.
	DeleteOldest(table, column, key string) string
	// Measure returns how many rows a table has, and how many bytes they take: exactly, by an
	// expression about one row, or by the server's estimate, where counting would read everything.
	Measure(table, bytes string) string
	// Millis is an expression for the database's time in Unix ms, with its arguments.
	Millis(ctx context.Context, now Clock) (expression string, args []any, err error)
	// InsertRows is how many of so many rows one INSERT takes.
	InsertRows(n int) int
}

// Server is how a database behaves beyond its statements.
type Server interface {
	// Prepares tells whether a prepared statement costs less than its text.
	Prepares() bool
	// Done returns the error of a statement that wrote. Some drivers answer "done" to a statement
	// left out because its context had ended.
	Done(ctx context.Context, err error) error
	// Time asks the database for its time.
	Time(ctx context.Context, q Querier) (time.Time, error)
	// Moment is the present moment as far as the database's clock goes along with it.
	Moment(look func() machine.Instant) machine.Instant
	// Pool sets how many connections are open, and for how long.
	Pool(db *sql.DB, most int, idle time.Duration)
	// CheckPrimary refuses servers whose locks do not hold for all writers.
	CheckPrimary(ctx context.Context, q Querier) error
	// CheckRowLocks refuses servers that accept a lock on a row and do not hold it.
	CheckRowLocks(ctx context.Context, db *sql.DB, probe Probe) error
	// Examine adds the server's description of itself.
	Examine(ctx context.Context, q Querier, now Clock, out *Examined) error
}

// Versions is how the tables are made.
type Versions interface {
	// Migrations returns goose's dialect, the migrations' folder, and options of the provider.
	Migrations() (d goose.Dialect, dir string, opts []goose.ProviderOption)
	// MakeVersions creates goose's table and first row, where goose does not in one transaction.
	MakeVersions(ctx context.Context, db *sql.DB, versions database.Store) error
	// Made tells whether a failed migration is made nevertheless, and the next one can be.
	Made(ctx context.Context, db *sql.DB, versions database.Store, failed error) bool
	// NoTable tells whether a statement failed because its table does not exist.
	NoTable(err error) bool
}
