package store

import (
	"context"
	"database/sql"
	"embed"
	"errors"
	"fmt"
	"io/fs"
	"strings"

	"github.com/pressly/goose/v3"
)

//go:embed migrations
var migrations embed.FS

// ErrNotMigrated: the tables are missing or older than this program.
var ErrNotMigrated = errors.New("the database is not migrated: run `notyet migrate`")

func (s *Store) migrator() (*goose.Provider, error) {
	dialect, dir := goose.DialectMySQL, "migrations/mysql"
	if s.sqlite {
		dialect, dir = goose.DialectSQLite3, "migrations/sqlite"
	}
	files, err := fs.Sub(migrations, dir)
	if err != nil {
		return nil, err
	}
	var opts []goose.ProviderOption
	if !s.sqlite {
		opts = append(opts, goose.WithSessionLocker(migrationLock{}))
	}
	return goose.NewProvider(dialect, s.db, files, opts...)
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

// up migrates. On SQLite there is no lock beyond a migration's own transaction. If another process
// makes the same migration at the same time, it fails here as a whole, and the next call finds it
// made.
func (s *Store) up(ctx context.Context, m *goose.Provider) error {
	for attempt := 1; ; attempt++ {
		_, err := m.Up(ctx)
		if err == nil || !s.sqlite || attempt == 5 || !strings.Contains(err.Error(), "already exists") {
			return err
		}
	}
}

// Migrate brings the tables to this program's version, and makes slots 0..slots-1 if there are
// none. It does not change the number of slots of an existing installation. It may be run again at
// any time.
func (s *Store) Migrate(ctx context.Context, slots int) error {
	if slots < 1 || slots > 4096 {
		return fmt.Errorf("slots must be 1 to 4096, not %d", slots)
	}
	m, err := s.migrator()
	if err != nil {
		return fmt.Errorf("reading the migrations: %w", err)
	}
	if err := s.up(ctx, m); err != nil {
		return fmt.Errorf("migrating the database: %w", err)
	}
	return s.makeSlots(ctx, slots)
}

// CheckMigrated returns ErrNotMigrated, wrapped with the versions, when Migrate has something to do.
func (s *Store) CheckMigrated(ctx context.Context) error {
	m, err := s.migrator()
	if err != nil {
		return fmt.Errorf("reading the migrations: %w", err)
	}
	pending, err := m.HasPending(ctx)
	if err != nil {
		return fmt.Errorf("reading the database's version: %w", err)
	}
	if pending {
		return ErrNotMigrated
	}
	n, err := s.SlotCount(ctx)
	if err == nil && n == 0 {
		return ErrNotMigrated
	}
	return err
}
