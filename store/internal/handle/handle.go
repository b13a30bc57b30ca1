// Package handle holds the common parts of the store's packages: the connection, the dialect, the
// database's time, the key of the lanes and the lines' offsets. The store opens a database and
// makes a Handle; questions of its packages go in, rows come out.
package handle

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"go.uber.org/zap"
	"gorm.io/gorm"

	place "github.com/notyet/notyet/internal/slots"
	"github.com/notyet/notyet/store/internal/dialect"
	"github.com/notyet/notyet/store/internal/tables"
	"github.com/notyet/notyet/task"
)

// ErrNotMigrated: the tables are missing or older than this program.
var ErrNotMigrated = errors.New("the database is not migrated: run `notyet migrate`")

// Handle is safe for use by several goroutines.
type Handle struct {
	Config
	// Conditions are the basis of writers. Only tests change them.
	Conditions Conditions

	lanes    atomic.Pointer[task.LaneKey]
	spread   atomic.Pointer[place.Spread] // see SpreadIn
	hint     claimedHint
	prepared prepared
	memory   memory
	writing  sync.Mutex // SQLite's writers poll for its lock and may starve; with this one they take turns
}

// Config is what the store knows of an open database.
type Config struct {
	DB      *sql.DB
	Gorm    *gorm.DB         // the same database, for tables that few write: see Cold
	Dialect dialect.Dialect  // says in the database's own words what SQLite and MySQL do differently
	Serial  bool             // this process makes writers serial, with writing
	Now     func() time.Time // of a database that is simulated; nil: the database is asked
	Life    string           // of the database, as an SQL expression: see Unsure and store/life.go
	Log     *zap.Logger
}

// New makes a Handle.
func New(cfg Config) *Handle { return &Handle{Config: cfg, Conditions: AllConditions()} }

// Ref is a Handle for the packages of the store alone. A type that embeds a Ref is a Source.
type Ref struct{ h *Handle }

// Ref refers to the handle.
func (h *Handle) Ref() Ref { return Ref{h} }

func (r Ref) handle() *Handle { return r.h }

// Source has a Handle.
type Source interface{ handle() *Handle }

// Of returns the Handle of a Source.
func Of(s Source) *Handle { return s.handle() }

// memory is store/intake's memory in this process.
type memory struct {
	once sync.Once
	of   any
}

// Memory returns store/intake's memory, made on first use, and common to all values on this handle.
func (h *Handle) Memory(first func() any) any {
	if h == nil { // of a store that was not opened
		return first()
	}
	h.memory.once.Do(func() { h.memory.of = first() })
	return h.memory.of
}

// Reads is for single reading statements. Several about slots, lanes or tags need a View.
func (h *Handle) Reads() dialect.Querier { return h.DB }

// Time asks the database for its time: with SQLite, this machine's.
func (h *Handle) Time(ctx context.Context) (time.Time, error) { return h.TimeIn(ctx, h.DB) }

// TimeIn is Time in the caller's view or transaction, which must not wait for another connection.
func (h *Handle) TimeIn(ctx context.Context, q dialect.Querier) (time.Time, error) {
	if h.Now != nil {
		return h.Now(), nil
	}
	return h.Dialect.Time(ctx, q)
}

// InstallationID is the name in table meta of the installation's id: 128 random bits of Migrate.
const InstallationID = "installation.id"

// LanesKey is the name in table meta of the key of the hash in lanes: 128 random bits of Migrate.
// Unlike the installation's id, it never leaves the database and the processes.
const LanesKey = "lanes.key"

// LaneKey returns the key of the hash in the installation's lanes. It never changes.
func (h *Handle) LaneKey(ctx context.Context) (task.LaneKey, error) { return h.LaneKeyIn(ctx, h.DB) }

// LaneKeyIn reads the key once. q is the caller's transaction, if any, for lack of connections.
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

func EnsureMeta(ctx context.Context, tx *sql.Tx, name []byte, value int64) error {
	var n int
	if err := tx.QueryRowContext(ctx, "SELECT COUNT(*) FROM meta WHERE name = ?", name).Scan(&n); err != nil || n > 0 {
		return err
	}
	_, err := tx.ExecContext(ctx, "INSERT INTO meta (name, value) VALUES (?, ?)", name, value) // a second one is a duplicate: tried again
	return err
}

// KeepMeta stores data under a name without any, and returns the name's data.
func (h *Handle) KeepMeta(ctx context.Context, name string, data []byte) (kept []byte, err error) {
	err = h.Transact(ctx, func(tx *sql.Tx) error {
		if kept, err = tables.ReadMeta(ctx, tx, name); err != nil || len(kept) > 0 {
			return err
		}
		kept = data
		res, err := tx.ExecContext(ctx, "UPDATE meta SET data = ? WHERE name = ? AND COALESCE(LENGTH(data), 0) = 0", data, []byte(name)) // not what another process has stored meanwhile
		if err != nil {
			return err
		}
		if n, err := res.RowsAffected(); err != nil || n > 0 {
			return err
		}
		_, err = tx.ExecContext(ctx, "INSERT INTO meta (name, value, data) VALUES (?, 0, ?)", []byte(name), data) // a second one is a duplicate: tried again
		return err
	})
	return kept, err
}
