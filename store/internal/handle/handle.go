// Package handle holds what the packages of the store have in common: the connection, the dialect, the
// database's time, the key of the lanes and the lines' offsets. The store opens a database and makes a
// Handle; questions of its packages go in, rows come out.
package handle

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"sync/atomic"
	"time"

	"github.com/notyet/notyet/store/internal/dialect"
	"github.com/notyet/notyet/store/internal/tables"
	"github.com/notyet/notyet/task"
)

// ErrNotMigrated means that the tables are missing or older than this program.
var ErrNotMigrated = errors.New("the database is not migrated: run `notyet migrate`")

// Handle is safe for use by several goroutines.
type Handle struct {
	db      *sql.DB
	dialect dialect.Dialect
	now     func() time.Time // of a database that is simulated; nil: the database is asked
	life    string           // of the database, as an SQL expression: see Unsure
	lanes   atomic.Pointer[task.LaneKey]
}

// New makes a Handle of an open database. now is the clock of a database that is simulated, nil
// otherwise. life is an SQL expression for the life of the database.
func New(db *sql.DB, d dialect.Dialect, now func() time.Time, life string) *Handle {
	return &Handle{db: db, dialect: d, now: now, life: life}
}

// Of returns the handle itself. Whatever embeds a Handle has this method, so that the packages of the
// store take it.
func (h *Handle) Of() *Handle { return h }

// Source has a Handle.
type Source interface{ Of() *Handle }

// Reads is for statements that only read, outside any transaction.
func (h *Handle) Reads() dialect.Querier { return h.db }

// Dialect says in the database's own words what SQLite and MySQL do differently.
func (h *Handle) Dialect() dialect.Dialect { return h.dialect }

// Life is an SQL expression for the life of the database: see store/life.go.
func (h *Handle) Life() string { return h.life }

// Time asks the database for its time. With SQLite, that is this machine's.
func (h *Handle) Time(ctx context.Context) (time.Time, error) {
	if h.now != nil {
		return h.now(), nil
	}
	return h.dialect.Time(ctx, h.db)
}

// LanesKey is the name in the table meta of the key of the hash in lanes: 128 random bits, made once, by Migrate. It never
// leaves the database and the processes, other than the installation's id, which many read.
const LanesKey = "lanes.key"

// LaneKey returns the key of the hash in the installation's lanes. It never changes.
func (h *Handle) LaneKey(ctx context.Context) (task.LaneKey, error) { return h.LaneKeyIn(ctx, h.db) }

// LaneKeyIn reads the key once. q is the caller's transaction, if it has one: there may be no other connection.
func (h *Handle) LaneKeyIn(ctx context.Context, q dialect.Querier) (task.LaneKey, error) {
	if key := h.lanes.Load(); key != nil {
		return *key, nil
	}
	data, err := tables.ReadMeta(ctx, q, LanesKey)
	var key task.LaneKey
	switch {
	case err != nil:
		return key, fmt.Errorf("reading the key of lanes: %w", err)
	case len(data) != len(key):
		return key, ErrNotMigrated
	}
	key = task.LaneKey(data)
	h.lanes.Store(&key)
	return key, nil
}
