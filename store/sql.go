package store

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"math/rand/v2"
	"strings"
	"time"

	"github.com/go-sql-driver/mysql"
	"go.uber.org/zap"
	"gorm.io/gorm"

	"github.com/notyet/notyet/internal/loop"
	"github.com/notyet/notyet/store/internal/dialect"
)

// ErrFenced says that the slot has another owner by now, or the intake another reader. Nothing was changed.
var ErrFenced = errors.New("fenced: another owner holds it")

// Lock clauses, for locking.
const (
	lockShared    = dialect.LockShared
	lockExclusive = dialect.LockExclusive
)

// locking is a lock clause as the database wants it.
func (s *Store) locking(clause string) string {
	if clause == lockShared {
		return s.dialect.Lock(s.conditions.shared)
	}
	return s.dialect.Lock(s.conditions.exclusive)
}

// maxPacket is the largest packet that MariaDB takes by default. In the text of a statement, some
// bytes of a value need two. A statement whose text would be longer than this is sent prepared,
// with its values beside the text.
const maxPacket = 16<<20 - 1

// transact runs f in a transaction. It runs f again when the transaction was the victim of a
// deadlock, or another writer came first. So f must be repeatable.
func (s *Store) transact(ctx context.Context, f func(tx *sql.Tx) error) error {
	for attempt := 1; ; attempt++ {
		err := s.once(ctx, f)
		if err == nil || ctx.Err() != nil || !contended(err) || attempt >= 20 {
			return err
		}
		s.log.Debug("transaction contended, running it again", zap.Int("attempt", attempt), zap.Error(err))
		if attempt > 1 { // two that collide twice are in step: a random pause of 1 to 64 ms separates them
			loop.Rest(ctx, rand.N(loop.Pause(attempt, time.Millisecond, 64*time.Millisecond)))
		}
	}
}

// once runs f in a transaction. Nothing is committed once the context has ended: SQLite's driver
// answers "done" to a statement that it left out for that.
func (s *Store) once(ctx context.Context, f func(tx *sql.Tx) error) error {
	caller := ctx
	if s.soleWriter {
		// If the context of a transaction ends, its connection is closed, and with it a database in
		// memory. The statements still have the caller's context, and a failed one rolls back.
		ctx = context.WithoutCancel(ctx)
		s.writing.Lock()
		defer s.writing.Unlock()
	}
	tx, err := s.db.BeginTx(ctx, nil)
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
		return fmt.Errorf("%w: %w", errCommit, err)
	}
	return nil
}

// exec runs one statement that writes, by itself. The end of the context is an error, as in once.
func (s *Store) exec(ctx context.Context, query string, args ...any) (sql.Result, error) {
	if s.soleWriter {
		s.writing.Lock()
		defer s.writing.Unlock()
	}
	res, err := s.db.ExecContext(ctx, query, args...)
	return res, s.dialect.Done(ctx, err)
}

// errCommit says that the commit may or may not have happened.
var errCommit = errors.New("committing")

// contended tells whether the same transaction can be tried again at once after an error.
func contended(err error) bool {
	var my *mysql.MySQLError
	if errors.As(err, &my) {
		switch my.Number {
		case 1213, 1205: // deadlock, lock wait timeout
			return true
		}
	}
	return duplicate(err) || errors.Is(err, errSpread)
}

// duplicate tells whether another writer inserted the same identity between our look and our insert.
func duplicate(err error) bool {
	var my *mysql.MySQLError
	if errors.As(err, &my) {
		return my.Number == 1062
	}
	return errors.Is(err, gorm.ErrDuplicatedKey) || strings.Contains(err.Error(), "UNIQUE constraint failed")
}
