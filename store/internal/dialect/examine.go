package dialect

import (
	"context"
	"database/sql"
	"strings"
	"time"

	"github.com/notyet/notyet/internal/machine"
)

// Examined is a database's description of itself.
type Examined struct {
	// Embedded: it is SQLite, in a file of this machine; nothing else is known.
	Embedded bool
	Version  string
	// Variables are the server's known settings of examinedVariables, in lower case.
	Variables map[string]string
	// Ahead is how far the server's clock is ahead of this machine's, at least. Within, the round
	// trip, is how much more it may be.
	Ahead, Within time.Duration
	// Schema is the version of the tables, 0 where there are none, and Wanted this program's.
	Schema, Wanted int64
	// Missing are needed rights that the user has not; nil where a role gives them.
	Missing []string
}

// examinedVariables are what the promises or the work of notyet depend on.
var examinedVariables = []any{
	"version", "version_comment", "innodb_flush_log_at_trx_commit", "sync_binlog", "log_bin", "binlog_format", "innodb_doublewrite", "innodb_flush_method",
	"read_only", "super_read_only", "max_allowed_packet", "max_connections", "max_user_connections", "innodb_lock_wait_timeout",
	"rpl_semi_sync_master_enabled", "rpl_semi_sync_source_enabled", "sql_select_limit", "max_statement_time", "max_execution_time",
}

// neededRights are those of the services and of migrate.
var neededRights = []string{"SELECT", "INSERT", "UPDATE", "DELETE", "CREATE", "ALTER", "INDEX"}

func (MySQL) Examine(ctx context.Context, q Querier, now Clock, out *Examined) error {
	if err := examineVariables(ctx, q, out); err != nil {
		return err
	}
	if err := examineClock(ctx, now, out); err != nil {
		return err
	}
	return examineRights(ctx, q, out)
}

type variable struct{ name, value string }

func readVariables(ctx context.Context, q Querier, names ...any) ([]variable, error) {
	rows, err := q.QueryContext(ctx, "SHOW GLOBAL VARIABLES WHERE Variable_name IN ("+strings.Repeat(",?", len(names))[1:]+")", names...)
	if err != nil {
		return nil, err
	}
	defer rows.Close()
	var out []variable
	for rows.Next() {
		var v variable
		if err := rows.Scan(&v.name, &v.value); err != nil {
			return nil, err
		}
		out = append(out, v)
	}
	return out, rows.Err()
}

func examineVariables(ctx context.Context, q Querier, out *Examined) error {
	rows, err := readVariables(ctx, q, examinedVariables...)
	out.Variables = map[string]string{}
	for _, v := range rows {
		out.Variables[strings.ToLower(v.name)] = strings.ToLower(v.value)
	}
	out.Version = strings.TrimSpace(out.Variables["version"] + " " + out.Variables["version_comment"])
	return err
}

// examineClock takes the quickest of three answers, which is the most exact.
func examineClock(ctx context.Context, now Clock, out *Examined) error {
	for i := range 3 {
		sent := time.Now()
		shown, err := now(ctx)
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

// examineRights looks at the user's own rights. Rights of a role are not looked up.
func examineRights(ctx context.Context, q Querier, out *Examined) error {
	const user = "CONCAT('''', REPLACE(CURRENT_USER(), '@', '''@'''), '''')"
	rows, err := q.QueryContext(ctx, "SELECT privilege_type FROM information_schema.user_privileges WHERE grantee = "+user+
		" UNION SELECT privilege_type FROM information_schema.schema_privileges WHERE grantee = "+user+" AND DATABASE() LIKE table_schema")
	if err != nil {
		return err
	}
	defer rows.Close()
	has := map[string]bool{}
	for rows.Next() {
		var granted string
		if err := rows.Scan(&granted); err != nil {
			return err
		}
		has[strings.ToUpper(granted)] = true
	}
	if err := rows.Err(); err != nil {
		return err
	}
	var role sql.NullString
	if err := q.QueryRowContext(ctx, "SELECT CURRENT_ROLE()").Scan(&role); err == nil && role.String != "" && role.String != "NONE" {
		return nil
	}
	for _, want := range neededRights {
		if !has[want] {
			out.Missing = append(out.Missing, want)
		}
	}
	return nil
}
