package store

import (
	"context"
	"crypto/rand"
	"database/sql"
	"embed"
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	"regexp"
	"time"

	"github.com/go-sql-driver/mysql"
	"github.com/pressly/goose/v3"
	"github.com/pressly/goose/v3/database"

	"github.com/notyet/notyet/internal/loop"
	"github.com/notyet/notyet/store/internal/handle"
	"github.com/notyet/notyet/store/internal/tables"
)

//go:embed migrations
var migrations embed.FS

// ErrNotMigrated: the tables are missing or older than this program.
var ErrNotMigrated = handle.ErrNotMigrated

func (s *Store) migrator(db *sql.DB) (*goose.Provider, error) {
	dialect, dir, opts := s.dialect.Migrations()
	files, err := fs.Sub(migrations, dir)
	if err != nil {
		return nil, err
	}
	return goose.NewProvider(dialect, db, files, opts...)
}

// versions is goose's table of applied migrations.
func (s *Store) versions() (database.Store, error) {
	dialect, _, _ := s.dialect.Migrations()
	return database.NewStore(dialect, goose.DefaultTablename)
}

const (
	// lockPatience is how long Migrate waits for each transaction that has used its table. All
	// others wait behind Migrate.
	lockPatience = 5 * time.Second
	// lockMost is how long Migrate tries again, with rests of lockPatience. A longer statement is
	// not repeated: the build of an index waits at its end too, and is lost if that wait fails.
	lockMost = time.Minute
)

// up migrates. A failed migration that is made by now does not stop it.
func (s *Store) up(ctx context.Context, m *goose.Provider) error {
	versions, err := s.versions()
	if err != nil {
		return err
	}
	if err := s.dialect.MakeVersions(ctx, s.db, versions); err != nil {
		return err
	}
	began := time.Now()
	for attempt := 0; ; attempt++ {
		_, err := m.Up(ctx)
		answer, _ := errors.AsType[*mysql.MySQLError](err)
		switch {
		case err == nil || attempt > len(m.ListSources()):
			return err
		case answer != nil && answer.Number == 1205 && time.Since(began) < lockMost: // lock wait timeout
			loop.Rest(ctx, lockPatience)
		case !s.dialect.Made(ctx, s.db, versions, err):
			return err
		}
	}
}

// makeInstallation makes the installation's id, and the key of its lanes, unless there are some. A
// database with slots was used before there were ids: then the claimed one is its own.
func (s *Store) makeInstallation(ctx context.Context, claimed func(context.Context) (string, error)) error {
	random := make([]byte, 32)
	_, _ = rand.Read(random) // never fails
	id := hex.AppendEncode(nil, random[:16])
	if _, err := s.Installation(ctx); claimed != nil && errors.Is(err, ErrNotMigrated) {
		used := false
		err := s.db.QueryRowContext(ctx, "SELECT COUNT(*) > 0 FROM slots").Scan(&used)
		if err == nil && used {
			var of string
			if of, err = claimed(ctx); of != "" {
				id = []byte(of)
			}
		}
		if err != nil {
			return fmt.Errorf("looking whose database this is: %w", err)
		}
	}
	if _, err := s.h.KeepMeta(ctx, handle.InstallationID, id); err != nil {
		return fmt.Errorf("making the installation's id: %w", err)
	}
	if _, err := s.h.KeepMeta(ctx, handle.LanesKey, random[16:]); err != nil {
		return fmt.Errorf("making the key of lanes: %w", err)
	}
	return nil
}

// Migrate brings the tables to this program's version, and makes the installation's id, the key of
// its lanes, and slots 0..slots-1 if there are none. It never changes an existing number of slots,
// and may be run again at any time.
func (s *Store) Migrate(ctx context.Context, slots int) error {
	return s.MigrateClaimed(ctx, slots, nil)
}

// MigrateClaimed is Migrate, for a database that may be a backup from before there were ids.
// claimed says which installation's it is; "": of none.
func (s *Store) MigrateClaimed(ctx context.Context, slots int, claimed func(context.Context) (string, error)) error {
	if slots < 1 || slots > 4096 {
		return fmt.Errorf("slots must be 1 to 4096, not %d", slots)
	}
	db := s.db
	if s.patient != nil {
		db = sql.OpenDB(serverConnector(s.patient))
		db.SetMaxIdleConns(-1) // the server drops them while up rests
		defer func() { _ = db.Close() }()
	}
	m, err := s.migrator(db)
	if err != nil {
		return fmt.Errorf("reading the migrations: %w", err)
	}
	if err := s.up(ctx, m); err != nil {
		return fmt.Errorf("migrating the database: %w", withFix(err))
	}
	if err := s.makeInstallation(ctx, claimed); err != nil {
		return err
	}
	return s.makeSlots(ctx, slots)
}

// makeSlots makes n slots unless there are some, looking again after another process came first.
func (s *Store) makeSlots(ctx context.Context, n int) error {
	return s.h.Transact(ctx, func(tx *sql.Tx) error {
		var have int
		if err := tx.QueryRowContext(ctx, "SELECT COUNT(*) FROM slots").Scan(&have); err != nil || have > 0 {
			return err
		}
		for i := range n {
			if _, err := tx.ExecContext(ctx, "INSERT INTO slots (slot, epoch, owner, claimed, done, life, life_epoch, base, spread, target) VALUES (?, 0, ?, 0, 0, "+s.h.Life+", 0, ?, ?, ?)", i, []byte{}, n, n, n); err != nil {
				return fmt.Errorf("making slot %d: %w", i, err)
			}
		}
		return nil
	})
}

// schema returns the version of the tables, 0 where there are none, and this program's.
func (s *Store) schema(ctx context.Context) (latest, wanted int64, err error) {
	m, err := s.migrator(s.db)
	if err != nil {
		return 0, 0, err
	}
	versions, err := s.versions()
	if err != nil {
		return 0, 0, err
	}
	known := m.ListSources()
	latest, err = versions.GetLatestVersion(ctx, s.db)
	if errors.Is(err, database.ErrVersionNotFound) || s.dialect.NoTable(err) {
		latest, err = 0, nil
	}
	return latest, known[len(known)-1].Version, err
}

// Migration is one that Migrate has not made yet.
type Migration struct {
	Name string `json:"name"` // of its file
	SQL  string `json:"sql"`
}

// Pending returns the migrations still to make, in order, and whether there are slots.
func (s *Store) Pending(ctx context.Context) (pending []Migration, slots bool, err error) {
	latest, _, err := s.schema(ctx)
	if err != nil {
		return nil, false, fmt.Errorf("reading the database's version: %w", err)
	}
	err = s.db.QueryRowContext(ctx, "SELECT COUNT(*) > 0 FROM slots").Scan(&slots)
	if err != nil && !s.dialect.NoTable(err) {
		return nil, false, fmt.Errorf("looking for slots: %w", err)
	}
	m, err := s.migrator(s.db)
	if err != nil {
		return nil, false, err
	}
	_, dir, _ := s.dialect.Migrations()
	for _, source := range m.ListSources() {
		if source.Version <= latest {
			continue
		}
		text, err := fs.ReadFile(migrations, dir+"/"+source.Path)
		if err != nil {
			return nil, false, err
		}
		pending = append(pending, Migration{source.Path, gooseLines.ReplaceAllString(string(text), "")})
	}
	return pending, slots, nil
}

// gooseLines tell goose how to run a migration.
var gooseLines = regexp.MustCompile(`(?m)^-- \+goose .*\n`)

// CheckMigrated returns ErrNotMigrated when Migrate has something to do, and ErrRequired when this
// program is too old. It creates nothing.
func (s *Store) CheckMigrated(ctx context.Context) error {
	latest, wanted, err := s.schema(ctx)
	switch {
	case err != nil:
		return fmt.Errorf("reading the database's version: %w", err)
	case latest < wanted:
		return ErrNotMigrated
	}
	if _, err := s.Installation(ctx); err != nil {
		return err
	}
	if _, err := s.h.LaneKey(ctx); err != nil {
		return err
	}
	n, err := s.h.SlotCount(ctx)
	switch {
	case err != nil:
		return err
	case n == 0:
		return ErrNotMigrated
	}
	return s.CheckRequired(ctx)
}

// Installation returns the id of the installation, 32 hexadecimal digits. It never changes.
func (s *Store) Installation(ctx context.Context) (string, error) {
	id, err := tables.ReadMeta(ctx, s.db, handle.InstallationID)
	switch {
	case err != nil:
		return "", fmt.Errorf("reading the installation's id: %w", err)
	case len(id) == 0:
		return "", ErrNotMigrated
	}
	return string(id), nil
}
