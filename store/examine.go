package store

import (
	"context"
	"errors"
	"strings"

	"github.com/go-sql-driver/mysql"

	"github.com/notyet/notyet/internal/wrap"
	"github.com/notyet/notyet/store/internal/dialect"
)

// Examined is a database's description of itself.
type Examined = dialect.Examined

// Examine asks the database about itself, and changes nothing.
func (s *Store) Examine(ctx context.Context) (Examined, error) {
	var out Examined
	var err error
	if out.Schema, out.Wanted, err = s.schema(ctx); err == nil {
		err = s.dialect.Examine(ctx, s.db, s.h.Time, &out)
	}
	return out, wrap.Err(err, "examining the database")
}

// Address returns where a DSN's database is, without user and password; "" for an unreadable DSN.
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

// Credentials splits a DSN into user, password, and the rest. The error does not contain the DSN.
func Credentials(dsn string) (user, password, rest string, err error) {
	parsed, err := mysql.ParseDSN(dsn)
	if err != nil || strings.HasPrefix(dsn, sqlitePrefix) {
		return "", "", "", errors.New("this is no DSN of a server: want user:password@tcp(host:port)/database")
	}
	user, password = parsed.User, parsed.Passwd
	parsed.User, parsed.Passwd = "", ""
	return user, password, parsed.FormatDSN(), nil
}
