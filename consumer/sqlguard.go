package consumer

import (
	"cmp"
	"context"
	"database/sql"
	"errors"
	"fmt"
	"regexp"
	"time"
)

// Dialect is the SQL dialect of a database.
type Dialect uint8

const (
	MySQL  Dialect = iota // and MariaDB
	SQLite                // 3
)

// dialects holds the statements; each takes the table's name. Keys are bytes: a text column would
// ignore their case and skip a delivery. Purging deletes in pieces, to hold locks briefly.
var dialects = [...]struct{ create, insert, purge string }{
	MySQL: {
		"CREATE TABLE IF NOT EXISTS %[1]s (delivery_key VARBINARY(255) NOT NULL PRIMARY KEY, handled_at BIGINT NOT NULL, KEY handled_at (handled_at))",
		"INSERT IGNORE INTO %[1]s (delivery_key, handled_at) VALUES (?, ?)",
		"DELETE FROM %[1]s WHERE handled_at < ? LIMIT 5000",
	},
	SQLite: {
		"CREATE TABLE IF NOT EXISTS %[1]s (delivery_key BLOB NOT NULL PRIMARY KEY, handled_at INTEGER NOT NULL) WITHOUT ROWID",
		"INSERT OR IGNORE INTO %[1]s (delivery_key, handled_at) VALUES (?, ?)",
		"DELETE FROM %[1]s WHERE delivery_key IN (SELECT delivery_key FROM %[1]s WHERE handled_at < ? LIMIT 5000)",
	},
}

// maxGuardKey is the length of the key's column in bytes. MySQL would truncate longer keys and
// mistake one for another.
const maxGuardKey = 255

var tableName = regexp.MustCompile(`^[A-Za-z_][A-Za-z0-9_]*(\.[A-Za-z_][A-Za-z0-9_]*)?$`)

// SQLGuardConfig of a SQLGuard; the zero value works for MySQL and MariaDB.
type SQLGuardConfig struct {
	Dialect Dialect

	// Table stores the keys. Handlers of one delivery in several groups need a table each. Default
	// "notyet_handled".
	Table string
}

// SQLGuard remembers in a table (delivery_key, handled_at in Unix ms) of MySQL, MariaDB or SQLite.
// There are two ways to use it:
//
// InTx marks a delivery in the transaction of the handler's own effect. Either both are stored or
// neither, even after a crash or with two consumers at once: the effect happens once per delivery.
//
// As Config.Guard it works for any handler, but marks only after the handler has succeeded. A crash
// in between repeats the delivery.
type SQLGuard struct {
	db                          *sql.DB
	create, find, insert, purge string
}

// NewSQLGuard makes a guard over the caller's database, which the caller closes. It does not touch
// the database: call Create for that.
func NewSQLGuard(db *sql.DB, c SQLGuardConfig) (*SQLGuard, error) {
	c.Table = cmp.Or(c.Table, "notyet_handled")
	if !tableName.MatchString(c.Table) {
		return nil, fmt.Errorf("making guard: %q is not a table's name", c.Table)
	}
	if int(c.Dialect) >= len(dialects) {
		return nil, fmt.Errorf("making guard: unknown dialect %d", c.Dialect)
	}
	d := dialects[c.Dialect]
	with := func(statement string) string { return fmt.Sprintf(statement, c.Table) }
	return &SQLGuard{
		db: db, create: with(d.create), insert: with(d.insert), purge: with(d.purge),
		find: with("SELECT 1 FROM %[1]s WHERE delivery_key = ?"),
	}, nil
}

// Create creates the table if it does not exist. A migration may create it instead; the key's
// column must then compare bytes.
func (g *SQLGuard) Create(ctx context.Context) error {
	if _, err := g.db.ExecContext(ctx, g.create); err != nil {
		return fmt.Errorf("creating the table of handled deliveries: %w", err)
	}
	return nil
}

// Seen implements Guard.
func (g *SQLGuard) Seen(ctx context.Context, deliveryKey string) (bool, error) {
	var one int
	err := g.db.QueryRowContext(ctx, g.find, []byte(deliveryKey)).Scan(&one)
	if errors.Is(err, sql.ErrNoRows) {
		return false, nil
	}
	if err != nil {
		return false, fmt.Errorf("looking for a handled delivery: %w", err)
	}
	return true, nil
}

// Done implements Guard.
func (g *SQLGuard) Done(ctx context.Context, deliveryKey string) error {
	_, err := g.mark(ctx, g.db, deliveryKey)
	return err
}

// Mark notes in the caller's transaction that the delivery is handled. It returns false if the
// delivery was already marked: then roll back. Mark waits while another open transaction has marked
// the same delivery, so call it first, before the effect.
func (g *SQLGuard) Mark(ctx context.Context, tx *sql.Tx, deliveryKey string) (bool, error) {
	return g.mark(ctx, tx, deliveryKey)
}

type execer interface {
	ExecContext(ctx context.Context, query string, args ...any) (sql.Result, error)
}

func (g *SQLGuard) mark(ctx context.Context, e execer, key string) (first bool, err error) {
	if key == "" || len(key) > maxGuardKey {
		return false, fmt.Errorf("marking a delivery as handled: its key has %d bytes instead of 1 to %d", len(key), maxGuardKey)
	}
	result, err := e.ExecContext(ctx, g.insert, []byte(key), time.Now().UnixMilli())
	if err == nil {
		err = ctx.Err() // a driver of SQLite may have left it out for that, and answers that it was done
	}
	if err != nil {
		return false, fmt.Errorf("marking a delivery as handled: %w", err)
	}
	n, err := result.RowsAffected()
	if err != nil {
		return false, fmt.Errorf("marking a delivery as handled: %w", err)
	}
	return n == 1, nil
}

// errCommit marks the error of a failed COMMIT, whose outcome is unknown.
var errCommit = errors.New("committing the handler's transaction")

// InTx makes a handler that runs in a transaction of its own and marks the delivery first. It skips
// a delivery that is already marked. It commits if the handler succeeds and rolls back otherwise.
// If the outcome of the commit is unknown, it runs everything once more; that does nothing if the
// first commit took effect.
//
// Messages that notyet did not deliver have no key, so their copies are not skipped.
func (g *SQLGuard) InTx(handle func(ctx context.Context, tx *sql.Tx, m Message) error) Handler {
	return func(ctx context.Context, m Message) error {
		err := g.runInTx(ctx, m, handle)
		if errors.Is(err, errCommit) && keyOf(m) != "" {
			err = g.runInTx(ctx, m, handle)
		}
		return err
	}
}

func (g *SQLGuard) runInTx(ctx context.Context, m Message, handle func(context.Context, *sql.Tx, Message) error) error {
	tx, err := g.db.BeginTx(ctx, nil)
	if err != nil {
		return fmt.Errorf("beginning the handler's transaction: %w", err)
	}
	defer func() { _ = tx.Rollback() }() // does nothing after a commit; needed after a panic
	if key := keyOf(m); key != "" {
		if first, err := g.Mark(ctx, tx, key); err != nil || !first {
			return err
		}
	}
	if err := handle(ctx, tx, m); err != nil {
		return err
	}
	if err := ctx.Err(); err != nil { // as in mark
		return err
	}
	if err := tx.Commit(); err != nil {
		return fmt.Errorf("%w: %w", errCommit, err)
	}
	return nil
}

func keyOf(m Message) string {
	if m.Delivery == nil {
		return ""
	}
	return m.Delivery.Key
}

// Purge forgets deliveries handled before the given time and returns their number. Keep at least
// what the business topics keep (Kafka's default is 7 days), because a copy can come as long. Each
// consumer marks by its machine's clock, so keep longer by the clocks' difference. Call it
// regularly, for example hourly.
func (g *SQLGuard) Purge(ctx context.Context, before time.Time) (int64, error) {
	var total int64
	for {
		result, err := g.db.ExecContext(ctx, g.purge, before.UnixMilli())
		if err != nil {
			return total, fmt.Errorf("purging handled deliveries: %w", err)
		}
		n, err := result.RowsAffected()
		if err != nil {
			return total, fmt.Errorf("purging handled deliveries: %w", err)
		}
		if total += n; n == 0 {
			return total, nil
		}
	}
}
