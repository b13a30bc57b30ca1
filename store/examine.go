package store

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/go-sql-driver/mysql"
	"github.com/pressly/goose/v3/database"

	"github.com/notyet/notyet/store/internal/dialect"
)

// Examined is what a database says of itself.
type Examined = dialect.Examined

// Examine asks the database about itself. It changes nothing.
func (s *Store) Examine(ctx context.Context) (Examined, error) {
	var out Examined
	err := s.examineSchema(ctx, &out)
	if err == nil {
		err = s.dialect.Examine(ctx, s.db, s.Time, &out)
	}
	if err != nil {
		return out, fmt.Errorf("examining the database: %w", err)
	}
	return out, nil
}

func (s *Store) examineSchema(ctx context.Context, out *Examined) error {
	m, err := s.migrator(s.db)
	if err != nil {
		return err
	}
	known := m.ListSources()
	out.Wanted = known[len(known)-1].Version
	versions, err := s.versions()
	if err != nil {
		return err
	}
	latest, err := versions.GetLatestVersion(ctx, s.db)
	if errors.Is(err, database.ErrVersionNotFound) || s.dialect.NoTable(err) {
		return nil
	}
	out.Schema = latest
	return err
}

// Address returns where a DSN's database is, without the user and the password; "" if the DSN cannot be read.
func Address(dsn string) string {
	if strings.HasPrefix(dsn, sqlitePrefix) {
		return dsn
	}
	parsed, err := mysql.ParseDSN(dsn)
	if err != nil || parsed.Net != "tcp" && parsed.Net != "unix" {
		return ""
	}
	return parsed.Addr + "/" + parsed.DBName
}
