package store

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/go-sql-driver/mysql"
	"github.com/pressly/goose/v3/database"

	"github.com/notyet/notyet/internal/machine"
)

// Examined is what a database says of itself.
type Examined struct {
	// Embedded: it is SQLite, in a file of this machine, and nothing else is known.
	Embedded bool
	Version  string
	// Variables are the server's settings of examinedVariables, as far as it has them, in lower case.
	Variables map[string]string
	// Ahead is how far the server's clock is ahead of this machine's, at least; Within is the round trip: by how much more it
	// may be.
	Ahead, Within time.Duration
	// Schema is the version of the tables, 0 where there are none, and Wanted the one of this program.
	Schema, Wanted int64
	// Missing are the rights on the database that notyet needs and its user has not; nil where they come from a role.
	Missing []string
}

// examinedVariables are what the promises or the work of notyet depend on.
var examinedVariables = []string{
	"version", "version_comment", "innodb_flush_log_at_trx_commit", "sync_binlog", "log_bin", "binlog_format", "innodb_doublewrite", "innodb_flush_method",
	"read_only", "super_read_only", "max_allowed_packet", "max_connections", "max_user_connections", "innodb_lock_wait_timeout",
	"rpl_semi_sync_master_enabled", "rpl_semi_sync_source_enabled",
}

// neededRights are those of the services and of migrate.
var neededRights = []string{"SELECT", "INSERT", "UPDATE", "DELETE", "CREATE", "ALTER", "INDEX", "DROP"}

// Examine asks the database about itself. It changes nothing.
func (s *Store) Examine(ctx context.Context) (Examined, error) {
	var out Examined
	err := s.examineSchema(ctx, &out)
	if s.sqlite {
		out.Embedded = true
		return out, err
	}
	for _, ask := range []func(context.Context, *Examined) error{s.examineVariables, s.examineClock, s.examineRights} {
		if err == nil {
			err = ask(ctx, &out)
		}
	}
	if err != nil {
		return out, fmt.Errorf("examining the database: %w", err)
	}
	return out, nil
}

func (s *Store) examineVariables(ctx context.Context, out *Examined) error {
	type variable struct{ name, value string }
	names := make([]any, len(examinedVariables))
	for i, v := range examinedVariables {
		names[i] = v
	}
	rows, err := fetch(ctx, s.db, func(r *sql.Rows, v *variable) error { return r.Scan(&v.name, &v.value) },
		"SHOW GLOBAL VARIABLES WHERE Variable_name IN ("+marks(len(names))+")", names...)
	out.Variables = map[string]string{}
	for _, v := range rows {
		out.Variables[strings.ToLower(v.name)] = strings.ToLower(v.value)
	}
	out.Version = strings.TrimSpace(out.Variables["version"] + " " + out.Variables["version_comment"])
	return err
}

// examineClock takes the quickest of three answers, which is the most exact.
func (s *Store) examineClock(ctx context.Context, out *Examined) error {
	for i := range 3 {
		sent := time.Now()
		shown, err := s.Time(ctx)
		if err != nil {
			return err
		}
		heard := time.Now()
		if took := heard.Sub(sent); i == 0 || took < out.Within {
			out.Ahead, out.Within = shown.Sub(machine.Now().Wall()), took
		}
	}
	return nil
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
	if errors.Is(err, database.ErrVersionNotFound) || isNumber(err, noTable) || err != nil && strings.Contains(err.Error(), "no such table") {
		return nil
	}
	out.Schema = latest
	return err
}

// examineRights looks at what is granted to the user itself. Rights of a role are not looked up.
func (s *Store) examineRights(ctx context.Context, out *Examined) error {
	type right struct{ name string }
	scan := func(r *sql.Rows, v *right) error { return r.Scan(&v.name) }
	const user = "CONCAT('''', REPLACE(CURRENT_USER(), '@', '''@'''), '''')"
	granted, err := fetch(ctx, s.db, scan, "SELECT privilege_type FROM information_schema.user_privileges WHERE grantee = "+user+
		" UNION SELECT privilege_type FROM information_schema.schema_privileges WHERE grantee = "+user+" AND DATABASE() LIKE table_schema")
	if err != nil {
		return err
	}
	var role sql.NullString
	if err := s.db.QueryRowContext(ctx, "SELECT CURRENT_ROLE()").Scan(&role); err == nil && role.String != "" && role.String != "NONE" {
		return nil
	}
	has := map[string]bool{}
	for _, g := range granted {
		has[strings.ToUpper(g.name)] = true
	}
	for _, want := range neededRights {
		if !has[want] {
			out.Missing = append(out.Missing, want)
		}
	}
	return nil
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
