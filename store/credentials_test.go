package store

import (
	"crypto/rand"
	"database/sql"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/go-sql-driver/mysql"
	"github.com/stretchr/testify/require"
	"go.uber.org/zap"

	"github.com/notyet/notyet/test/mysqltest"
)

// A password changes while the store works: its connections go on, and new ones, those of migrations too, are made with what is the
// password by then.
func TestThePasswordOfTheDatabaseChanges(t *testing.T) {
	dsn := mysqltest.Fresh(t)
	admin, err := sql.Open("mysql", dsn)
	require.NoError(t, err)
	t.Cleanup(func() { _ = admin.Close() })
	user := "r_" + strings.ToLower(rand.Text())[:16]
	do := func(statement string) {
		t.Helper()
		_, err := admin.Exec(strings.ReplaceAll(statement, "ACCOUNT", "'"+user+"'@'%'"))
		require.NoError(t, err)
	}
	do("CREATE USER ACCOUNT IDENTIFIED BY 'first'")
	parsed, err := mysql.ParseDSN(dsn)
	require.NoError(t, err)
	do("GRANT ALL ON " + parsed.DBName + ".* TO ACCOUNT")

	parsed.User, parsed.Passwd = user, "of the DSN"
	var password atomic.Value
	password.Store("first")
	cfg := Config{DSN: parsed.FormatDSN(), Credentials: func() (string, string) { return user, password.Load().(string) }}
	connect := func() error {
		s, err := Open(t.Context(), cfg, zap.NewNop())
		if err == nil {
			err = s.Close()
		}
		return err
	}
	s, err := Open(t.Context(), cfg, zap.NewNop())
	require.NoError(t, err)
	t.Cleanup(func() { _ = s.Close() })
	living, err := s.db.Conn(t.Context())
	require.NoError(t, err)
	defer living.Close()

	do("ALTER USER ACCOUNT IDENTIFIED BY 'second'")
	require.NoError(t, living.PingContext(t.Context()))
	require.ErrorContains(t, connect(), "see that user and password of the DSN are right")
	require.ErrorContains(t, s.Ping(t.Context()), "Access denied", "the pool needs another connection")
	password.Store("second")
	require.NoError(t, connect())
	require.NoError(t, s.Ping(t.Context()))
	require.NoError(t, living.PingContext(t.Context()))
	require.NoError(t, s.Migrate(t.Context(), 2))

	do("ALTER USER ACCOUNT PASSWORD EXPIRE")
	require.Regexp(t, "SET PASSWORD|expired", connect())
	do("DROP USER ACCOUNT")
	require.ErrorContains(t, connect(), "Access denied")
	require.NotContains(t, connect().Error(), "second")
}

func TestCredentialsOfADSN(t *testing.T) {
	user, password, rest, err := Credentials("u:p@tcp(h:1)/d?timeout=1s")
	require.NoError(t, err)
	require.Equal(t, []string{"u", "p"}, []string{user, password})
	_, _, same, err := Credentials("v:q@tcp(h:1)/d?timeout=1s")
	require.NoError(t, err)
	require.Equal(t, rest, same)
	for _, other := range []string{"u:p@tcp(h:2)/d?timeout=1s", "u:p@tcp(h:1)/e?timeout=1s", "u:p@tcp(h:1)/d"} {
		_, _, differs, err := Credentials(other)
		require.NoError(t, err)
		require.NotEqual(t, rest, differs)
	}
	for _, bad := range []string{"geheim", "sqlite:geheim"} {
		_, _, _, err := Credentials(bad)
		require.Error(t, err)
		require.NotContains(t, err.Error(), "geheim")
	}
}
