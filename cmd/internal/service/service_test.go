package service

import (
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kgo"
	"go.uber.org/zap"
	"go.uber.org/zap/zaptest/observer"

	"github.com/notyet/notyet/internal/access"
	"github.com/notyet/notyet/internal/config"
	"github.com/notyet/notyet/schemas"
	"github.com/notyet/notyet/store"
	"github.com/notyet/notyet/store/admin"
	"github.com/notyet/notyet/store/look"
)

func fileWith(t *testing.T, name, text string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), name)
	require.NoError(t, os.WriteFile(path, []byte(text), 0o600))
	return path
}

// However many callers are refused, the audit log gets one entry for each kind, and none while the database is away.
func TestRefusalsAreNoted(t *testing.T) {
	began := time.Now()
	core, logs := observer.New(zap.WarnLevel)
	log := zap.New(core)
	guard, err := access.New(access.Config{Tokens: fileWith(t, "tokens.yaml", "- {name: a, sha256: 9f86d081884c7d659a2feaa0c55ad015a3bf4f1b2b0b822cd15d6c15b0f00a08, role: read, topics: ['*']}\n")}, log)
	require.NoError(t, err)
	open := func() *store.Store {
		st, err := store.Open(t.Context(), store.Config{DSN: "sqlite:" + t.TempDir() + "/notyet.db"}, log)
		require.NoError(t, err)
		return st
	}
	e := &Engine{store: open()}
	s := &Service{guard: guard, log: log, shards: []*shard{{}}}
	s.shards[0].engine.Store(e)
	require.NoError(t, e.store.Migrate(t.Context(), 4))
	t.Cleanup(func() { require.NoError(t, e.store.Close()) })
	h := guard.Handler(http.NotFoundHandler())
	for i := range 5000 {
		r := httptest.NewRequest(http.MethodGet, "/api/v1/tasks", nil)
		h.ServeHTTP(httptest.NewRecorder(), r) // without a token: nobody tried to be somebody
		r.Header.Set("Authorization", "Bearer nyt_geheim")
		h.ServeHTTP(httptest.NewRecorder(), r)
		if i%10 == 0 {
			_, err := guard.SignIn(r, "nyt_geheim")
			require.Error(t, err)
		}
	}
	away := open()
	require.NoError(t, away.Close())
	there := e.store
	e.store = away
	s.writeRefusals(t.Context())
	require.Equal(t, 1, logs.FilterMessageSnippet("cannot be noted").Len())
	e.store = there
	for range 2 {
		s.writeRefusals(t.Context())
	}
	page, err := look.New(e.store).ListAudit(t.Context(), look.AuditFilter{})
	require.NoError(t, err)
	require.Len(t, page.Entries, 2)
	for _, e := range page.Entries {
		require.Equal(t, "not signed in", e.Who)
		require.Equal(t, "sign-in refused", e.What)
		require.NotContains(t, e.Detail, "geheim")
	}
	require.EqualValues(t, []int64{500, 5000}, []int64{page.Entries[0].Count, page.Entries[1].Count})
	require.JSONEq(t, `{"why":"wrong_token","at":"console","last_peer":"192.0.2.1"}`, page.Entries[0].Detail)
	require.JSONEq(t, `{"why":"wrong_token","at":"api","last_peer":"192.0.2.1"}`, page.Entries[1].Detail)
	lines, most := logs.FilterMessage("HTTP requests were refused").Len(), 20+int(time.Since(began).Seconds())
	require.LessOrEqual(t, lines, most, "a line a second")
}

// A service that has started keeps its kind of index, though the last one before it ends in the same moment, until it has ended itself.
func TestTheIndexOfAServiceThatStarts(t *testing.T) {
	dsn := "sqlite:" + t.TempDir() + "/notyet.db"
	st, err := store.Open(t.Context(), store.Config{DSN: dsn}, zap.NewNop())
	require.NoError(t, err)
	defer func() { _ = st.Close() }()
	require.NoError(t, st.Migrate(t.Context(), 1))
	require.NoError(t, admin.New(st).Beat(t.Context(), admin.Service{ID: "before", Kind: "scanner"}))
	cfg, err := config.Load(config.Sources{Environ: []string{"NOTYET_INDEX_KIND=mysql", "NOTYET_HTTP_ADDR=127.0.0.1:0"}})
	require.NoError(t, err)
	cfg.MySQL.DSN = dsn
	s, err := open(t.Context(), cfg, "scanner", zap.NewNop(), io.Discard)
	require.NoError(t, err)
	defer s.close()
	require.NoError(t, admin.New(st).Leave(t.Context(), "before"))
	require.ErrorIs(t, admin.New(st).IndexBy(t.Context(), "redis"), admin.ErrOtherIndex)
	s.close()
	require.NoError(t, admin.New(st).IndexBy(t.Context(), "redis"))

	_, err = open(t.Context(), cfg, "scanner", zap.NewNop(), io.Discard)
	require.ErrorIs(t, err, admin.ErrOtherIndex)
	left, err := look.New(st).Services(t.Context())
	require.NoError(t, err)
	require.Empty(t, left, "one that could not start keeps nobody")
}

// A dispatcher whose directory does not tell who had it before does without that.
func TestADispatcherThatCannotReadWhoHadItsSendLog(t *testing.T) {
	dir := t.TempDir()
	require.NoError(t, os.MkdirAll(dir+"/sendlog/occupant/x", 0o700))
	dsn := "sqlite:" + dir + "/notyet.db"
	st, err := store.Open(t.Context(), store.Config{DSN: dsn}, zap.NewNop())
	require.NoError(t, err)
	defer func() { _ = st.Close() }()
	require.NoError(t, st.Migrate(t.Context(), 1))
	cfg, err := config.Load(config.Sources{Environ: []string{"NOTYET_INDEX_KIND=mysql", "NOTYET_ELECTION_KIND=mysql", "NOTYET_HTTP_ADDR=127.0.0.1:0", "NOTYET_SENDLOG_DIR=" + dir + "/sendlog"}})
	require.NoError(t, err)
	cfg.MySQL.DSN = dsn
	log, logged := observer.New(zap.WarnLevel)
	s, err := open(t.Context(), cfg, "dispatcher", zap.New(log), io.Discard)
	require.NoError(t, err)
	defer s.close()
	require.NoError(t, s.home().AddDispatcher())
	require.Equal(t, 1, logged.FilterMessageSnippet("sendlog.dir").Len())
}

// A scanner does not start beside one that has another target for an intake topic: which of them reads a record is chance.
func TestScannersWithOtherTargets(t *testing.T) {
	dsn := "sqlite:" + t.TempDir() + "/notyet.db"
	st, err := store.Open(t.Context(), store.Config{DSN: dsn}, zap.NewNop())
	require.NoError(t, err)
	defer func() { _ = st.Close() }()
	require.NoError(t, st.Migrate(t.Context(), 1))
	start := func(name, topics string) (*Service, error) {
		cfg, err := config.Load(config.Sources{Environ: []string{"NOTYET_INDEX_KIND=mysql", "NOTYET_HTTP_ADDR=127.0.0.1:0"}, File: fileWith(t, "notyet.yaml", "intake: {topics: "+topics+"}\n")})
		require.NoError(t, err)
		cfg.MySQL.DSN = dsn
		return open(t.Context(), cfg, name, zap.NewNop(), io.Discard)
	}
	one, err := start("scanner", "[{topic: orders.later, target: orders}]")
	require.NoError(t, err)
	_, err = start("scanner", "[orders.later]")
	require.ErrorIs(t, err, admin.ErrOtherTarget)
	for name, topics := range map[string]string{"scanner": "[notyet.intake]", "dispatcher": "[orders.later]", "all": "[notyet.intake, {topic: orders.later, target: orders}]"} {
		s, err := start(name, topics)
		require.NoError(t, err, name)
		s.close()
	}
	one.close()
	one, err = start("scanner", "[orders.later]")
	require.NoError(t, err)
	one.close()
}

// Reconcile reads the intake again with the limits that scanners have.
func TestReconcileDecodesLikeAScanner(t *testing.T) {
	cfg, err := config.Load(config.Sources{Environ: []string{}, File: fileWith(t, "notyet.yaml", "intake:\n  topics: [{topic: orders.later, target: orders}]\n")})
	require.NoError(t, err)
	s := &Service{cfg: cfg}
	require.NoError(t, s.takeLimits(cfg))
	for _, headers := range [][]kgo.RecordHeader{
		{{Key: schemas.HeaderDelay, Value: []byte("1h")}},
		{{Key: schemas.HeaderDelay, Value: []byte("1h")}, {Key: schemas.HeaderTopic, Value: []byte("bills")}},
		{{Key: schemas.HeaderDelay, Value: []byte("1h")}, {Key: schemas.HeaderURL, Value: []byte("https://a.example")}},
	} {
		r := &kgo.Record{Topic: "orders.later", Timestamp: time.UnixMilli(1790000000000), Headers: headers}
		first, firstErr := schemas.Decode(r, scannerConfig(cfg, *s.in.Load()).IntakeLimits[r.Topic])
		again, againErr := schemas.Decode(r, CatchUpConfig(cfg).IntakeLimits[r.Topic])
		require.Equal(t, first, again)
		require.Equal(t, firstErr, againErr)
		var rejection *schemas.Rejection
		require.Equal(t, len(headers) > 1, errors.As(firstErr, &rejection))
	}
}
