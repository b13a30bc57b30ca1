package admin

import (
	"context"
	"database/sql"
	"fmt"

	"github.com/notyet/notyet/internal/wrap"
	"github.com/notyet/notyet/store/internal/handle"
	"github.com/notyet/notyet/store/internal/tables"
)

const (
	copyName       = "copy"
	reconcileSince = "reconcile.since"
)

// Reconciles notes from when on the next reconciliation reads the send logs, should this one be
// interrupted. It stops the operations that a backup has as running: they ended since, and what
// they would change now nobody has meant.
func (a Admin) Reconciles(ctx context.Context, since string) error {
	kept, err := a.h.KeepMeta(ctx, reconcileSince, []byte(since))
	if err == nil && string(kept) != since {
		_, err = a.h.Exec(ctx, "UPDATE meta SET data = ? WHERE name = ?", []byte(since), []byte(reconcileSince))
	}
	if err == nil {
		_, err = a.h.Exec(ctx, "UPDATE operations SET state = ?, why = ? WHERE state = ?", []byte(OperationStopped), []byte("the database was restored"), []byte(OperationRuns))
	}
	return wrap.Err(err, "noting that the database is reconciled")
}

// Reconciling returns what Reconciles has noted; "": no reconciliation was interrupted.
func (a Admin) Reconciling(ctx context.Context) (string, error) {
	since, err := tables.ReadMeta(ctx, a.h.DB, reconcileSince)
	return string(since), wrap.Err(err, "reading whether a reconciliation was interrupted")
}

// Reconciled notes that the reconciliation has come to its end.
func (a Admin) Reconciled(ctx context.Context) error {
	_, err := a.h.Exec(ctx, "UPDATE meta SET data = ? WHERE name = ?", []byte{}, []byte(reconcileSince))
	return wrap.Err(err, "noting that the database is reconciled")
}

// Copy returns the name of this copy of the database; "": no command has given it one.
func (a Admin) Copy(ctx context.Context) (string, error) {
	name, err := tables.ReadMeta(ctx, a.h.DB, copyName)
	return string(name), wrap.Err(err, "reading the name of this copy of the database")
}

// NameCopy names this copy of the database, unless it has another name than before by now.
func (a Admin) NameCopy(ctx context.Context, before, name string) error {
	return wrap.Err(a.h.Transact(ctx, func(tx *sql.Tx) error {
		now, _, err := tables.One[[]byte](ctx, tx, "SELECT data FROM meta WHERE name = ?"+a.h.Locking(handle.LockExclusive), []byte(copyName))
		switch {
		case err != nil || string(now) == name:
			return err
		case string(now) != before:
			return fmt.Errorf("another command has named it %q meanwhile", now)
		case before == "":
			_, err = tx.ExecContext(ctx, "INSERT INTO meta (name, value, data) VALUES (?, 0, ?)", []byte(copyName), []byte(name)) // a second one is a duplicate: tried again
		default:
			_, err = tx.ExecContext(ctx, "UPDATE meta SET data = ? WHERE name = ?", []byte(name), []byte(copyName))
		}
		return err
	}), "naming this copy of the database")
}
