package store

import (
	"context"
	"embed"
	"errors"
	"fmt"
	"io/fs"

	"github.com/pressly/goose/v3"
)

//go:embed migrations
var migrations embed.FS

// ErrNotMigrated: the tables are missing or older than this program.
var ErrNotMigrated = errors.New("the database is not migrated: run `notyet migrate`")

func (s *Store) migrator() (*goose.Provider, error) {
	dialect, dir := goose.DialectMySQL, "migrations/mysql"
	if s.lite {
		dialect, dir = goose.DialectSQLite3, "migrations/sqlite"
	}
	files, err := fs.Sub(migrations, dir)
	if err != nil {
		return nil, err
	}
	return goose.NewProvider(dialect, s.db, files)
}

// Migrate brings the tables to this program's version and makes slots 0..slots-1 where there are none yet; the number of
// slots of an existing installation is left as it is. It may be run again at any time.
func (s *Store) Migrate(ctx context.Context, slots int) error {
	if slots < 1 || slots > 4096 {
		return fmt.Errorf("slots must be 1 to 4096, not %d", slots)
	}
	m, err := s.migrator()
	if err != nil {
		return fmt.Errorf("reading the migrations: %w", err)
	}
	if _, err := m.Up(ctx); err != nil {
		return fmt.Errorf("migrating the database: %w", err)
	}
	have, err := s.SlotCount(ctx)
	if err != nil || have > 0 {
		return err
	}
	return s.makeSlots(ctx, slots)
}

// CheckMigrated answers ErrNotMigrated, wrapped with the versions, when Migrate has something to do.
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
