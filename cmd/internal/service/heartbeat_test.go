package service

import (
	"context"
	"database/sql"
	"io"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/zap"

	"github.com/notyet/notyet/internal/command"
	"github.com/notyet/notyet/internal/config"
	"github.com/notyet/notyet/store"
	"github.com/notyet/notyet/store/admin"
	"github.com/notyet/notyet/store/look"
	"github.com/notyet/notyet/store/shards"
)

// A process that stops is gone at once, and a database that is away does not hold it up.
func TestHeartbeat(t *testing.T) {
	st, err := store.Open(t.Context(), store.Config{DSN: "sqlite:" + t.TempDir() + "/notyet.db"}, zap.NewNop())
	require.NoError(t, err)
	defer func() { _ = st.Close() }()
	require.NoError(t, st.Migrate(t.Context(), 1))
	h := newHeartbeat(st, "scanner", "127.0.0.1:1", "redis", zap.NewNop())
	h.every = time.Millisecond
	ctx, stop := context.WithCancel(t.Context())
	ended := make(chan error)
	go func() { ended <- h.run(ctx) }()
	alive := func(n int) func() bool {
		return func() bool {
			all, err := look.New(st).Services(t.Context())
			require.NoError(t, err)
			return len(all) == n
		}
	}
	require.Eventually(t, alive(1), time.Minute, time.Millisecond)
	require.NoError(t, admin.New(st).Leave(t.Context(), h.service.ID))
	require.Eventually(t, alive(1), time.Minute, time.Millisecond, "it says so again and again")
	stop()
	require.NoError(t, <-ended)
	h.leave()
	require.True(t, alive(0)())

	require.NoError(t, st.Close())
	ctx, stop = context.WithCancel(t.Context())
	go func() { ended <- h.run(ctx) }()
	stop()
	require.NoError(t, <-ended)
	h.leave()
}

// A service ends where the installation begins to require what it does not know, and does not start there.
func TestAServiceThatIsTooOld(t *testing.T) {
	dsn := "sqlite:" + t.TempDir() + "/notyet.db"
	st, err := store.Open(t.Context(), store.Config{DSN: dsn}, zap.NewNop())
	require.NoError(t, err)
	defer func() { _ = st.Close() }()
	require.NoError(t, st.Migrate(t.Context(), 1))
	h := newHeartbeat(st, "scanner", "127.0.0.1:1", "redis", zap.NewNop())
	h.every = time.Millisecond
	ended := make(chan error)
	go func() { ended <- h.run(t.Context()) }()
	db, err := sql.Open("sqlite", strings.TrimPrefix(dsn, "sqlite:")+"?_pragma=busy_timeout(10000)")
	require.NoError(t, err)
	defer func() { _ = db.Close() }()
	_, err = db.Exec("INSERT INTO meta (name, value) VALUES (?, 1)", []byte("required.tea"))
	require.NoError(t, err)
	err = <-ended
	require.ErrorIs(t, err, store.ErrRequired)
	require.ErrorContains(t, err, "release "+command.Version()+": the installation requires what this program does not know: tea; run the release")

	cfg, err := config.Load(config.Sources{Environ: []string{"NOTYET_INDEX_KIND=mysql", "NOTYET_HTTP_ADDR=127.0.0.1:0"}})
	require.NoError(t, err)
	cfg.MySQL.DSN = dsn
	_, err = open(t.Context(), cfg, "scanner", zap.NewNop(), io.Discard)
	require.ErrorContains(t, err, "release "+command.Version())
	_, err = db.Exec("UPDATE meta SET value = 0")
	require.NoError(t, err)
	s, err := open(t.Context(), cfg, "scanner", zap.NewNop(), io.Discard)
	require.NoError(t, err)
	s.close()
}

// A service that knows one database ends where the installation has several: it may have stood still while the second one came.
func TestAServiceOfOneOfSeveralDatabases(t *testing.T) {
	st, err := store.Open(t.Context(), store.Config{DSN: "sqlite:" + t.TempDir() + "/notyet.db"}, zap.NewNop())
	require.NoError(t, err)
	defer func() { _ = st.Close() }()
	require.NoError(t, st.Migrate(t.Context(), 1))
	home, err := st.Installation(t.Context())
	require.NoError(t, err)
	h := newHeartbeat(st, "scanner", "127.0.0.1:1", "redis", zap.NewNop())
	h.every, h.service.Databases = time.Millisecond, 1
	require.NoError(t, h.say(t.Context()))
	ended := make(chan error)
	go func() { ended <- h.run(t.Context()) }()
	require.NoError(t, shards.New(st).Join(t.Context(), 0, home, shards.Stand{}))
	require.ErrorIs(t, <-ended, shards.ErrOtherShard)
}
