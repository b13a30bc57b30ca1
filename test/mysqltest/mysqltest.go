// Package mysqltest makes databases for tests: a server goes in, the DSN of an empty database comes out.
package mysqltest

import (
	"context"
	"crypto/rand"
	"database/sql"
	"fmt"
	"os"
	"strings"
	"testing"

	"github.com/go-sql-driver/mysql"
	"github.com/stretchr/testify/require"
)

// Fresh makes a database on the server that NOTYET_MYSQL_DSN names, and drops it after the test. Without a server the test is skipped.
func Fresh(t testing.TB) (dsn string) {
	t.Helper()
	server := os.Getenv("NOTYET_MYSQL_DSN")
	if server == "" {
		t.Skip("NOTYET_MYSQL_DSN is not set: run scripts/servers up and evaluate scripts/servers env")
	}
	return FreshOn(t, server)
}

// FreshOn is Fresh, on a server.
func FreshOn(t testing.TB, server string) (dsn string) {
	t.Helper()
	cfg, err := mysql.ParseDSN(server)
	require.NoError(t, err)
	db, err := sql.Open("mysql", server)
	require.NoError(t, err)
	cfg.DBName = "notyet_test_" + rand.Text()
	_, err = db.ExecContext(t.Context(), "CREATE DATABASE "+cfg.DBName)
	require.NoError(t, err)
	t.Cleanup(func() {
		if _, err := db.ExecContext(context.Background(), "DROP DATABASE "+cfg.DBName); err != nil {
			t.Log("dropping a test's database:", err)
		}
		require.NoError(t, db.Close())
	})
	return cfg.FormatDSN()
}

// Patient is a DSN with which a test's own connections may be silent for 50 s, and not for 5 as those of a service: a process that is watched
// for races and works on many megabytes has stood still for longer.
func Patient(t testing.TB, dsn string) string {
	t.Helper()
	if strings.HasPrefix(dsn, "sqlite:") {
		return dsn
	}
	cfg, err := mysql.ParseDSN(dsn)
	require.NoError(t, err)
	if cfg.Params == nil {
		cfg.Params = map[string]string{}
	}
	cfg.Params["wait_timeout"] = "50"
	return cfg.FormatDSN()
}

// User makes a user who may do everything in a database. drop takes the user away, with all connections; the end of the test does it too.
func User(t testing.TB, database, password string) (name string, drop func()) {
	t.Helper()
	db, err := sql.Open("mysql", os.Getenv("NOTYET_MYSQL_DSN"))
	require.NoError(t, err)
	name = "t_" + strings.ToLower(rand.Text())[:20]
	for _, statement := range []string{"CREATE USER " + name + " IDENTIFIED BY '" + password + "'", "GRANT ALL ON `" + database + "`.* TO " + name} {
		_, err := db.ExecContext(t.Context(), statement)
		require.NoError(t, err)
	}
	drop = func() {
		_, err := db.ExecContext(context.Background(), "DROP USER IF EXISTS "+name)
		require.NoError(t, err)
		disconnect(t, db, name)
	}
	t.Cleanup(func() { drop(); require.NoError(t, db.Close()) })
	return name, drop
}

// disconnect ends a user's connections, which go on without their user otherwise.
func disconnect(t testing.TB, db *sql.DB, user string) {
	rows, err := db.QueryContext(context.Background(), "SELECT id FROM information_schema.processlist WHERE user = ?", user)
	require.NoError(t, err)
	defer rows.Close()
	var ids []int64
	for rows.Next() {
		var id int64
		require.NoError(t, rows.Scan(&id))
		ids = append(ids, id)
	}
	require.NoError(t, rows.Err())
	for _, id := range ids {
		_, _ = db.ExecContext(context.Background(), fmt.Sprintf("KILL %d", id)) // one may have ended
	}
}
