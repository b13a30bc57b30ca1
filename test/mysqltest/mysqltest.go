// Package mysqltest makes databases for tests: a server goes in, the DSN of an empty database comes out.
package mysqltest

import (
	"context"
	"crypto/rand"
	"database/sql"
	"os"
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
