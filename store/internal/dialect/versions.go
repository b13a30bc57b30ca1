package dialect

import (
	"context"
	"database/sql"
	"errors"
	"fmt"

	"github.com/pressly/goose/v3"
	"github.com/pressly/goose/v3/database"
)

func (MySQL) Migrations() (goose.Dialect, string, []goose.ProviderOption) {
	return goose.DialectMySQL, "migrations/mysql", []goose.ProviderOption{goose.WithSessionLocker(migrationLock{})}
}

// MakeVersions lets one process at a time create the table. Goose creates it without the lock, and
// MySQL not in one transaction: another process, or the next one after a kill, would find a table
// without its row, and fail.
func (MySQL) MakeVersions(ctx context.Context, db *sql.DB, versions database.Store) error {
	return underLock(ctx, db, func(conn *sql.Conn) error {
		if err := versions.CreateVersionTable(ctx, conn); err != nil && !answered(err, tableExists) {
			return err
		}
		applied, err := versions.ListMigrations(ctx, conn)
		if err != nil || len(applied) > 0 {
			return err
		}
		return versions.Insert(ctx, conn, database.InsertRequest{Version: 0})
	})
}

// Numbers of MySQL's errors.
const (
	tableExists  = 1050
	columnExists = 1060
	indexExists  = 1061
	nothingThere = 1091
	noTable      = 1146
)

// dropsIdent is the migration whose DROP fails first if all of it is made.
const dropsIdent = 11

func partialError(failed error) (*goose.PartialError, bool) {
	partial, ok := errors.AsType[*goose.PartialError](failed)
	return partial, ok && partial.Failed != nil
}

// Made notes a migration that failed because it is made: an earlier run's connection or process had
// ended, and the server had gone on. Each migration is one statement, made as a whole. An existing
// table may be anybody's, so its comment must name the migration.
func (MySQL) Made(ctx context.Context, db *sql.DB, versions database.Store, failed error) bool {
	partial, ok := partialError(failed)
	if !ok {
		return false
	}
	version := partial.Failed.Source.Version
	switch {
	case answered(failed, columnExists, indexExists), answered(failed, nothingThere) && version == dropsIdent:
	case answered(failed, tableExists) && madeTable(ctx, db, version):
	default:
		return false
	}
	return underLock(ctx, db, func(conn *sql.Conn) error {
		latest, err := versions.GetLatestVersion(ctx, conn)
		if err == nil && latest < version {
			err = versions.Insert(ctx, conn, database.InsertRequest{Version: version})
		}
		return err
	}) == nil
}

// madeTable tells whether this migration has made a table.
func madeTable(ctx context.Context, db *sql.DB, version int64) bool {
	var n int
	err := db.QueryRowContext(ctx, "SELECT COUNT(*) FROM information_schema.tables WHERE table_schema = DATABASE() AND table_comment = ?",
		fmt.Sprintf("notyet %d", version)).Scan(&n)
	return err == nil && n == 1
}

func (MySQL) NoTable(err error) bool { return answered(err, noTable) }
