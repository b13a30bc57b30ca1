package store

import (
	"context"
	"database/sql"
	"embed"
	"errors"
	"fmt"
	"io/fs"
	"strings"

	"github.com/go-sql-driver/mysql"
	"github.com/pressly/goose/v3"
	"github.com/pressly/goose/v3/database"
)

//go:embed migrations
var migrations embed.FS

// ErrNotMigrated means that the tables are missing or older than this program.
var ErrNotMigrated = errors.New("the database is not migrated: run `notyet migrate`")

func (s *Store) dialect() (d goose.Dialect, dir string) {
	if s.sqlite {
		return goose.DialectSQLite3, "migrations/sqlite"
	}
	return goose.DialectMySQL, "migrations/mysql"
}

func (s *Store) migrator(db *sql.DB) (*goose.Provider, error) {
	dialect, dir := s.dialect()
	files, err := fs.Sub(migrations, dir)
	if err != nil {
		return nil, err
	}
	var opts []goose.ProviderOption
	if !s.sqlite {
		opts = append(opts, goose.WithSessionLocker(migrationLock{}))
	}
	return goose.NewProvider(dialect, db, files, opts...)
}

// versions is goose's table of what was applied.
func (s *Store) versions() (database.Store, error) {
	dialect, _ := s.dialect()
	return database.NewStore(dialect, goose.DefaultTablename)
}

// migrationLock lets one process migrate at a time. It is the server's, for its database, and ends with the connection.
type migrationLock struct{}

// lockName is at most 64 bytes, as servers want it. SHA2 is what all of them have: MySQL 9.6 has dropped MD5.
const lockName = "CONCAT('notyet.migrate.', LEFT(SHA2(DATABASE(), 256), 32))"

func (migrationLock) SessionLock(ctx context.Context, conn *sql.Conn) error {
	var got sql.NullInt64
	err := conn.QueryRowContext(ctx, "SELECT GET_LOCK("+lockName+", 50)").Scan(&got)
	if err == nil && got.Int64 != 1 {
		err = errors.New("another process has been migrating the database for 50 s")
	}
	return err
}

func (migrationLock) SessionUnlock(ctx context.Context, conn *sql.Conn) error {
	_, err := conn.ExecContext(ctx, "DO RELEASE_LOCK("+lockName+")")
	return err
}

// makeVersions creates goose's table with its first row, one process at a time. Goose creates it without the lock, and MySQL not in one
// transaction: another process, or the next one after a kill, would find a table without that row, and fail.
func (s *Store) makeVersions(ctx context.Context) error {
	versions, err := s.versions()
	if err != nil || s.sqlite { // on SQLite it is one transaction
		return err
	}
	conn, err := s.db.Conn(ctx)
	if err != nil {
		return err
	}
	defer func() { _ = conn.Close() }()
	var lock migrationLock
	if err := lock.SessionLock(ctx, conn); err != nil {
		return err
	}
	defer func() { _ = lock.SessionUnlock(context.WithoutCancel(ctx), conn) }()
	if err := versions.CreateVersionTable(ctx, conn); err != nil && !isNumber(err, tableExists) {
		return err
	}
	applied, err := versions.ListMigrations(ctx, conn)
	if err != nil || len(applied) > 0 {
		return err
	}
	return versions.Insert(ctx, conn, database.InsertRequest{Version: 0})
}

// Numbers of MySQL's errors.
const (
	tableExists  = 1050
	columnExists = 1060
	indexExists  = 1061
	nothingThere = 1091
	noTable      = 1146
)

// dropsIdent is the migration of which the server looks first whether what it drops is there.
const dropsIdent = 11

func isNumber(err error, number uint16) bool {
	var my *mysql.MySQLError
	return errors.As(err, &my) && my.Number == number
}

// noteMade notes a migration of MySQL that failed because it is made: the connection of an earlier run had ended, and the server had
// gone on with the statement. It returns whether the next migration can be made. Each migration is one statement, so it is made as a
// whole. A table that exists may be anybody's, so that one stays an error.
func (s *Store) noteMade(ctx context.Context, failed error) bool {
	partial, ok := errors.AsType[*goose.PartialError](failed)
	if !ok || partial.Failed == nil {
		return false
	}
	dropped := isNumber(failed, nothingThere) && partial.Failed.Source.Version == dropsIdent
	if !dropped && !isNumber(failed, columnExists) && !isNumber(failed, indexExists) {
		return false
	}
	versions, err := s.versions()
	if err != nil {
		return false
	}
	conn, err := s.db.Conn(ctx)
	if err != nil {
		return false
	}
	defer func() { _ = conn.Close() }()
	var lock migrationLock
	if err := lock.SessionLock(ctx, conn); err != nil {
		return false
	}
	defer func() { _ = lock.SessionUnlock(context.WithoutCancel(ctx), conn) }()
	latest, err := versions.GetLatestVersion(ctx, conn)
	if err == nil && latest < partial.Failed.Source.Version {
		err = versions.Insert(ctx, conn, database.InsertRequest{Version: partial.Failed.Source.Version})
	}
	return err == nil
}

// up migrates. On SQLite there is no lock beyond a migration's own transaction. If another process
// makes the same migration at the same time, it fails here as a whole, and the next call finds it
// made.
func (s *Store) up(ctx context.Context, m *goose.Provider) error {
	if err := s.makeVersions(ctx); err != nil {
		return err
	}
	for attempt := 0; ; attempt++ {
		_, err := m.Up(ctx)
		if err == nil || attempt > len(m.ListSources()) || s.sqlite && !s.madeByAnother(ctx, err) || !s.sqlite && !s.noteMade(ctx, err) {
			return err
		}
	}
}

// madeByAnother tells whether a migration failed because it is made by now, or goose's own table is.
func (s *Store) madeByAnother(ctx context.Context, failed error) bool {
	partial, ok := errors.AsType[*goose.PartialError](failed)
	if !ok || partial.Failed == nil {
		return strings.Contains(failed.Error(), "already exists")
	}
	versions, err := s.versions()
	if err != nil {
		return false
	}
	latest, err := versions.GetLatestVersion(ctx, s.db)
	return err == nil && latest >= partial.Failed.Source.Version
}

// Migrate brings the tables to this program's version, and makes the installation's id, the key of its lanes, and slots
// 0..slots-1 if there are none. It does not change the number of slots of an existing installation. It may be run again at
// any time.
func (s *Store) Migrate(ctx context.Context, slots int) error {
	if slots < 1 || slots > 4096 {
		return fmt.Errorf("slots must be 1 to 4096, not %d", slots)
	}
	db := s.db
	if s.patient != nil {
		db = sql.OpenDB(connector{s.patient})
		defer func() { _ = db.Close() }()
	}
	m, err := s.migrator(db)
	if err != nil {
		return fmt.Errorf("reading the migrations: %w", err)
	}
	if err := s.up(ctx, m); err != nil {
		return fmt.Errorf("migrating the database: %w", err)
	}
	if err := s.makeInstallation(ctx); err != nil {
		return err
	}
	return s.makeSlots(ctx, slots)
}

// CheckMigrated returns ErrNotMigrated when Migrate has something to do. It creates nothing.
func (s *Store) CheckMigrated(ctx context.Context) error {
	m, err := s.migrator(s.db)
	if err != nil {
		return fmt.Errorf("reading the migrations: %w", err)
	}
	versions, err := s.versions()
	if err != nil {
		return err
	}
	known := m.ListSources()
	latest, err := versions.GetLatestVersion(ctx, s.db)
	switch {
	case errors.Is(err, database.ErrVersionNotFound), isNumber(err, noTable), err != nil && strings.Contains(err.Error(), "no such table"):
		return ErrNotMigrated
	case err != nil:
		return fmt.Errorf("reading the database's version: %w", err)
	case latest < known[len(known)-1].Version:
		return ErrNotMigrated
	}
	if _, err := s.Installation(ctx); err != nil {
		return err
	}
	if _, err := s.LaneKey(ctx); err != nil {
		return err
	}
	n, err := s.SlotCount(ctx)
	if err == nil && n == 0 {
		return ErrNotMigrated
	}
	return err
}
