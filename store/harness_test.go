package store

import (
	"context"
	"os"
	"testing"

	"github.com/stretchr/testify/require"
	"go.uber.org/zap"

	"github.com/notyet/notyet/test/mysqltest"
)

// backend is a kind of database: SQLite in a file and in memory always, MySQL or MariaDB where NOTYET_MYSQL_DSN names one
// whose user may create databases.
type backend struct {
	name   string
	sqlite bool
	fresh  func(t testing.TB) Config // a database without tables
}

const testSlots = 4

func backends() []backend {
	file := func(t testing.TB) Config { return Config{DSN: sqlitePrefix + t.TempDir() + "/notyet.db"} }
	memory := func(testing.TB) Config { return Config{DSN: sqlitePrefix + ":memory:"} }
	all := []backend{{"sqlite-file", true, file}, {"sqlite-memory", true, memory}}
	if os.Getenv("NOTYET_MYSQL_DSN") != "" {
		all = append(all, backend{"mysql", false, freshMySQL})
	}
	return all
}

func freshMySQL(t testing.TB) Config { return Config{DSN: mysqltest.Fresh(t)} }

// fixture is a store with empty tables and four slots.
type fixture struct {
	*Store
	t      testing.TB
	ctx    context.Context
	config Config
}

func (b backend) fixture(t testing.TB) *fixture {
	f := &fixture{t: t, ctx: t.Context(), config: b.fresh(t)}
	f.Store = open(t, f.config)
	require.NoError(t, f.Migrate(f.ctx, testSlots))
	return f
}

// each runs the case on every database. The tests of tasks, which run likewise, are those of store/intake.
func each(t *testing.T, f func(t *testing.T, s *fixture)) {
	t.Helper()
	for _, b := range backends() {
		t.Run(b.name, func(t *testing.T) { f(t, b.fixture(t)) })
	}
}

func open(t testing.TB, cfg Config) *Store {
	t.Helper()
	s, err := Open(t.Context(), cfg, zap.NewNop())
	require.NoError(t, err)
	t.Cleanup(func() { _ = s.Close() })
	return s
}
