package main

import (
	"context"
	"encoding/json"
	"io"
	"net/http"
	"os"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/zap"
	"go.uber.org/zap/zaptest/observer"

	"github.com/notyet/notyet/api"
	"github.com/notyet/notyet/cmd/internal/command"
	"github.com/notyet/notyet/internal/config"
	"github.com/notyet/notyet/internal/figures"
	"github.com/notyet/notyet/store"
	"github.com/notyet/notyet/store/admin"
	"github.com/notyet/notyet/store/look"
)

func TestClusterOfDev(t *testing.T) {
	d := startDev(t)
	var found api.Cluster
	require.Eventually(t, func() bool {
		r := d.cmd(t, "cluster", "--json")
		require.Equal(t, command.ExitDone, r.code, r.stderr)
		require.NoError(t, json.Unmarshal([]byte(r.stdout), &found))
		return len(found.Services) == 1 && found.Services[0].Slots == len(found.Slots) && found.LagError == ""
	}, time.Minute, 10*time.Millisecond)
	require.Equal(t, "dev", found.Services[0].Kind)
	require.Equal(t, command.Version(), found.Services[0].Version)
	require.Equal(t, d.http, found.Services[0].HTTP)
	require.Equal(t, found.Services[0].Member, found.Slots[0].Owner)
	topics := map[string]bool{}
	for _, l := range found.Lag {
		topics[l.Topic] = true
	}
	require.Equal(t, map[string]bool{"notyet.intake": true, "notyet.reports": true}, topics)
	r := d.cmd(t, "cluster")
	require.Contains(t, r.stdout, "dev ")
	require.Contains(t, r.stdout, "0 without a living owner")
	require.Contains(t, r.stdout, "notyet.intake")
}

// What a service says of itself is what its metrics say, and its overview shows it.
func TestOverviewOfDev(t *testing.T) {
	d := startDev(t)
	r := d.cmd(t, "schedule", "--topic", "orders", "--id", "a", "--delay", "0s", "--value", "x")
	require.Equal(t, command.ExitDone, r.code, r.stderr)
	first(t, d.kafka, "orders")
	client := api.NewClient(api.ClientConfig{Addr: d.http})
	var found api.Overview
	require.Eventually(t, func() bool {
		var err error
		found, err = client.Overview(t.Context(), 60)
		require.NoError(t, err)
		return found.Now.Delivered > 0 && found.Now.Stored > 0
	}, time.Minute, 50*time.Millisecond)
	require.Equal(t, api.Reporting{Alive: 1, Reporting: 1}, found.Services)
	require.NotNil(t, found.Now.LatenessP99)
	require.Empty(t, found.Missing)
	require.Empty(t, found.Alerts)

	resp, err := http.Get("http://" + d.http + "/metrics") //nolint:noctx // a test's
	require.NoError(t, err)
	text, err := io.ReadAll(resp.Body)
	require.NoError(t, err)
	require.NoError(t, resp.Body.Close())
	for _, name := range figures.Metrics() {
		switch name {
		case "notyet_scanner_halted_partition", "notyet_scanner_standing_partition_seconds", "notyet_scanner_quota_wait_seconds": // there while it happens, or where there are quotas
		case "notyet_config_refused": // dev reads its configuration once
		default:
			require.Contains(t, string(text), "# TYPE "+name+" ", "figures are made of it")
		}
	}
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
	s, err := openService(t.Context(), cfg, "scanner", zap.NewNop(), io.Discard)
	require.NoError(t, err)
	defer s.close()
	require.NoError(t, admin.New(st).Leave(t.Context(), "before"))
	require.ErrorIs(t, admin.New(st).IndexBy(t.Context(), "redis"), admin.ErrOtherIndex)
	s.close()
	require.NoError(t, admin.New(st).IndexBy(t.Context(), "redis"))

	_, err = openService(t.Context(), cfg, "scanner", zap.NewNop(), io.Discard)
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
	s, err := openService(t.Context(), cfg, "dispatcher", zap.New(log), io.Discard)
	require.NoError(t, err)
	defer s.close()
	require.NoError(t, s.joinDispatchers())
	require.Equal(t, 1, logged.FilterMessageSnippet("sendlog.dir").Len())
}

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
