package handle

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"math/rand/v2"
	"strings"
	"sync"
	"time"

	"github.com/go-sql-driver/mysql"
	"go.uber.org/zap"
	"gorm.io/gorm"

	"github.com/notyet/notyet/internal/loop"
	"github.com/notyet/notyet/store/internal/dialect"
)

// ErrFenced: the slot has another owner by now, or the intake another reader. Nothing was changed.
var ErrFenced = errors.New("fenced: another owner holds it")

// Lock clauses, for Locking.
const (
	LockShared    = dialect.LockShared
	LockExclusive = dialect.LockExclusive
)

// Locking is a lock clause as the database wants it.
func (h *Handle) Locking(clause string) string {
	if clause == LockShared {
		return h.Dialect.Lock(h.Conditions.Shared)
	}
	return h.Dialect.Lock(h.Conditions.Exclusive)
}

// Transact runs f in a transaction, and again after a deadlock, or when another writer came first.
// So f must be repeatable.
func (h *Handle) Transact(ctx context.Context, f func(tx *sql.Tx) error) error {
	for attempt := 1; ; attempt++ {
		err := h.once(ctx, f)
		if err == nil || ctx.Err() != nil || !Contended(err) || attempt >= 20 {
			return err
		}
		h.Log.Debug("transaction contended, running it again", zap.Int("attempt", attempt), zap.Error(err))
		if attempt > 1 { // two that collide twice are in step: a random pause of 1 to 64 ms separates them
			loop.Rest(ctx, rand.N(loop.Pause(attempt, time.Millisecond, 64*time.Millisecond)))
		}
	}
}

// once runs f in a transaction. Nothing is committed once the context has ended: then SQLite's
// driver leaves statements out, and answers "done".
func (h *Handle) once(ctx context.Context, f func(tx *sql.Tx) error) error {
	caller := ctx
	if h.Serial {
		// The end of a transaction's context would close its connection, and with it a database in
		// memory. The statements still have the caller's context, and a failed one rolls back.
		ctx = context.WithoutCancel(ctx)
		h.writing.Lock()
		defer h.writing.Unlock()
	}
	tx, err := h.DB.BeginTx(ctx, nil)
	if err != nil {
		return fmt.Errorf("beginning a transaction: %w", err)
	}
	if err = f(tx); err == nil {
		err = caller.Err()
	}
	if err != nil {
		_ = tx.Rollback()
		return err
	}
	if err := tx.Commit(); err != nil {
		return fmt.Errorf("%w: %w", ErrCommit, err)
	}
	return nil
}

// View runs f on one state of the database: all that f reads through q was committed when f began
// to read. Walks over slots, lanes or tags by several statements need a view. Between two states a
// task may go from the unwalked part to the walked one.
func (h *Handle) View(ctx context.Context, f func(q dialect.Querier) error) error {
	caller := ctx
	if h.Serial {
		ctx = context.WithoutCancel(ctx) // see once
	}
	tx, err := h.DB.BeginTx(ctx, &sql.TxOptions{Isolation: sql.LevelRepeatableRead, ReadOnly: true})
	if err != nil {
		return fmt.Errorf("beginning to read: %w", err)
	}
	defer func() { _ = tx.Rollback() }() // there is nothing to commit
	if err := f(tx); err != nil {
		return err
	}
	return caller.Err()
}

// Exec runs one statement that writes, by itself. The end of the context is an error, as in once.
func (h *Handle) Exec(ctx context.Context, query string, args ...any) (sql.Result, error) {
	if h.Serial {
		h.writing.Lock()
		defer h.writing.Unlock()
	}
	res, err := h.DB.ExecContext(ctx, query, args...)
	return res, h.Dialect.Done(ctx, err)
}

// ErrCommit: the commit may or may not have happened.
var ErrCommit = errors.New("committing")

// Contended tells whether the same transaction can be tried again at once after an error.
func Contended(err error) bool {
	if my, ok := errors.AsType[*mysql.MySQLError](err); ok {
		switch my.Number {
		case 1213, 1205: // deadlock, lock wait timeout
			return true
		}
	}
	return Duplicate(err) || errors.Is(err, ErrSpread) || errors.Is(err, ErrClaimed)
}

// Duplicate: another writer inserted the same identity between our look and our insert.
func Duplicate(err error) bool {
	if my, ok := errors.AsType[*mysql.MySQLError](err); ok {
		return my.Number == 1062
	}
	return errors.Is(err, gorm.ErrDuplicatedKey) || strings.Contains(err.Error(), "UNIQUE constraint failed")
}

// PreparedRows is how many rows a prepared statement has. Each task's statements are prepared,
// because parsing costs the server about as much as executing. Longer ones gain nothing.
const PreparedRows = 128

type prepared struct {
	mu sync.Mutex
	by map[string]*sql.Stmt
}

// Prepare returns a prepared statement, or nil: then the caller sends the text. Call it before a
// transaction: another connection may be needed.
func (h *Handle) Prepare(ctx context.Context, query string) *sql.Stmt {
	if !h.Dialect.Prepares() {
		return nil
	}
	h.prepared.mu.Lock()
	defer h.prepared.mu.Unlock()
	stmt := h.prepared.by[query]
	if stmt != nil {
		return stmt
	}
	stmt, err := h.DB.PrepareContext(ctx, query)
	if err != nil {
		h.Log.Debug("preparing a statement failed", zap.Error(err))
		return nil
	}
	if h.prepared.by == nil {
		h.prepared.by = map[string]*sql.Stmt{}
	}
	h.prepared.by[query] = stmt
	return stmt
}

// Query runs a query, prepared if it has PreparedRows arguments.
func (h *Handle) Query(ctx context.Context, query string, args []any) (*sql.Rows, error) {
	if len(args) == PreparedRows {
		if stmt := h.Prepare(ctx, query); stmt != nil {
			return stmt.QueryContext(ctx, args...)
		}
	}
	return h.DB.QueryContext(ctx, query, args...)
}
