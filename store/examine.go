package store

import (
	"context"
	"fmt"
	"strings"

	"github.com/go-sql-driver/mysql"

	"github.com/notyet/notyet/store/internal/dialect"
)

// Examined is what a database says of itself.
type Examined = dialect.Examined

// Examine asks the database about itself. It changes nothing.
func (s *Store) Examine(ctx context.Context) (Examined, error) {
	var out Examined
	var err error
	if out.Schema, out.Wanted, err = s.schema(ctx); err == nil {
		err = s.dialect.Examine(ctx, s.db, s.h.Time, &out)
	}
	if err != nil {
		return out, fmt.Errorf("examining the database: %w", err)
	}
	return out, nil
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
