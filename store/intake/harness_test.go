package intake

import (
	"context"
	"crypto/rand"
	"database/sql"
	"fmt"
	"os"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/go-sql-driver/mysql"
	"github.com/stretchr/testify/require"
	"go.uber.org/zap"

	"github.com/notyet/notyet/store"
	"github.com/notyet/notyet/test/mysqltest"
)

// One suite for every database: SQLite in a file and in memory always, MySQL or MariaDB where NOTYET_MYSQL_DSN names one
// whose user may create databases.
type backend struct {
	name   string
	sqlite bool
	// fresh answers a database without tables that nobody else uses; it goes away with the test.
	fresh func(t testing.TB) store.Config
	// migrated answers one with empty tables and four slots.
	migrated func(t testing.TB) store.Config
}

const testSlots = 4

func backends() []backend {
	file := func(t testing.TB) store.Config { return store.Config{DSN: "sqlite:" + t.TempDir() + "/notyet.db"} }
	memory := func(testing.TB) store.Config { return store.Config{DSN: "sqlite:" + ":memory:"} }
	all := []backend{
		{name: "sqlite-file", sqlite: true, fresh: file, migrated: file},
		{name: "sqlite-memory", sqlite: true, fresh: memory, migrated: memory},
	}
	if os.Getenv("NOTYET_MYSQL_DSN") != "" {
		all = append(all, backend{name: "mysql", fresh: freshMySQL, migrated: pooledMySQL})
	}
	return all
}

// each runs the case on every database, on a store with empty tables and four slots. The race detector makes SQLite ten times as
// slow, and watches goroutines alone. So under it SQLite is left out where there is a server; scripts/test runs all without it too.
func each(t *testing.T, f func(t *testing.T, s *fixture)) {
	t.Helper()
	without := []string{"sqlite-file"}
	if os.Getenv("NOTYET_MYSQL_DSN") != "" {
		without = append(without, "sqlite-memory")
	}
	eachBut(t, without, f)
}

// eachAtOnce is each for cases with goroutines: the race detector watches them in memory too.
func eachAtOnce(t *testing.T, f func(t *testing.T, s *fixture)) {
	t.Helper()
	eachBut(t, []string{"sqlite-file"}, f)
}

func eachBut(t *testing.T, underRace []string, f func(t *testing.T, s *fixture)) {
	t.Helper()
	for _, b := range backends() {
		if !raceDetector || !slices.Contains(underRace, b.name) {
			t.Run(b.name, func(t *testing.T) { f(t, b.fixture(t)) })
		}
	}
}

func (b backend) fixture(t testing.TB) *fixture {
	cfg := b.migrated(t)
	s := open(t, cfg)
	require.NoError(t, s.Migrate(t.Context(), testSlots))
	f := newFixture(t, s)
	f.backend, f.config = b, cfg
	return f
}

func open(t testing.TB, cfg store.Config) *store.Store {
	t.Helper()
	s, err := store.Open(t.Context(), cfg, zap.NewNop())
	require.NoError(t, err)
	t.Cleanup(func() { _ = s.Close() })
	return s
}

// server is the MySQL server under test, with the databases that this process has made there.
var server struct {
	sync.Mutex
	admin *sql.DB
	made  []string // to be dropped
	free  []string // migrated, with tables to be emptied before use
}

func TestMain(m *testing.M) {
	code := m.Run()
	for _, name := range server.made {
		if _, err := server.admin.Exec("DROP DATABASE " + name); err != nil {
			fmt.Fprintln(os.Stderr, "dropping a test database:", err)
			code = 1
		}
	}
	os.Exit(code)
}

func mysqlDSN(t testing.TB, database string) string {
	cfg, err := mysql.ParseDSN(os.Getenv("NOTYET_MYSQL_DSN"))
	require.NoError(t, err)
	cfg.DBName = database
	return mysqltest.Patient(t, cfg.FormatDSN())
}

func freshMySQL(t testing.TB) store.Config {
	server.Lock()
	defer server.Unlock()
	if server.admin == nil {
		var err error
		server.admin, err = sql.Open("mysql", mysqlDSN(t, ""))
		require.NoError(t, err)
	}
	name := "notyet_test_" + rand.Text()
	_, err := server.admin.ExecContext(t.Context(), "CREATE DATABASE "+name)
	require.NoError(t, err)
	server.made = append(server.made, name)
	return store.Config{DSN: mysqlDSN(t, name)}
}

// pooledMySQL takes a database that an earlier test has finished with: making tables costs ten times as much as emptying them.
func pooledMySQL(t testing.TB) store.Config {
	server.Lock()
	var name string
	if n := len(server.free); n > 0 {
		name, server.free = server.free[n-1], server.free[:n-1]
	}
	server.Unlock()
	var cfg store.Config
	if name == "" {
		cfg = freshMySQL(t)
		parsed, err := mysql.ParseDSN(cfg.DSN)
		require.NoError(t, err)
		name = parsed.DBName
	} else {
		cfg = store.Config{DSN: mysqlDSN(t, name)}
		emptyTables(t, cfg)
	}
	t.Cleanup(func() {
		server.Lock()
		defer server.Unlock()
		server.free = append(server.free, name)
	})
	return cfg
}

// emptyTables works in one transaction: the server syncs once.
func emptyTables(t testing.TB, cfg store.Config) {
	db, err := sql.Open("mysql", cfg.DSN)
	require.NoError(t, err)
	defer db.Close()
	tx, err := db.BeginTx(context.Background(), nil)
	require.NoError(t, err)
	for _, table := range []string{"tasks", "slots", "sources", "outbox", "waiting", "dead_letters", "meta", "timers", "audit", "targets", "services", "figures", "members", "assignment", "tags", "unknown_targets", "operations", "homes", "leaving"} {
		_, err := tx.Exec("DELETE FROM " + table)
		require.NoError(t, err)
	}
	require.NoError(t, tx.Commit())
}

func nowMillis() int64 { return time.Now().UnixMilli() }
