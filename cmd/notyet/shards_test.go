package main

import (
	"encoding/json"
	"testing"

	"github.com/stretchr/testify/require"
	"go.uber.org/zap"

	"github.com/notyet/notyet/api"
	"github.com/notyet/notyet/internal/command"
	"github.com/notyet/notyet/internal/config"
	"github.com/notyet/notyet/store"
	"github.com/notyet/notyet/store/admin"
)

func TestShards(t *testing.T) {
	first, second := "sqlite:"+t.TempDir()+"/notyet.db", "sqlite:"+t.TempDir()+"/notyet.db"
	one, both := []string{"NOTYET_MYSQL_DSN=" + first}, []string{"NOTYET_MYSQL_SHARDS=" + first + "," + second, "NOTYET_KAFKA_BROKERS=" + kafkaCluster(t, "one")}
	run := func(environ []string, args ...string) result { return notyet(t, environ, "", args...) }
	list := func() (out api.Shards) {
		t.Helper()
		r := run(both, "shards", "list", "--json")
		require.Equal(t, command.ExitDone, r.code, r.stderr)
		require.NoError(t, json.Unmarshal([]byte(r.stdout), &out))
		return out
	}
	require.Equal(t, command.ExitDone, run(one, "migrate", "--database-only").code)
	r := run(both, "list")
	require.Equal(t, command.ExitDone, r.code, r.stderr)
	require.Contains(t, r.stderr, "database 1 of mysql.shards: the database is not migrated", "what is missing in the answer is named")

	st, err := store.Open(t.Context(), store.Config{DSN: first}, zap.NewNop())
	require.NoError(t, err)
	defer func() { _ = st.Close() }()
	require.NoError(t, admin.New(st).Beat(t.Context(), admin.Service{ID: "host-1", Kind: "all"}))
	r = run(both, "shards", "add", "1")
	require.Equal(t, command.ExitFailed, r.code)
	require.Contains(t, r.stderr, "services are alive that do not know the database: host-1")
	require.Equal(t, command.ExitDone, run(one, "list").code, "nothing has changed")
	require.NoError(t, admin.New(st).Leave(t.Context(), "host-1"))

	for _, bad := range []string{"0", "2", "-1"} {
		require.Equal(t, command.ExitUsage, run(both, "shards", "add", bad).code, bad)
	}
	for range 2 {
		r = run(both, "shards", "add", "1")
		require.Equal(t, command.ExitDone, r.code, r.stderr)
		require.Contains(t, r.stdout, "database 1: part of the installation, with 64 slots")
	}
	for _, half := range [][]string{one, {"NOTYET_MYSQL_DSN=" + second}} {
		r = run(half, "list")
		require.Equal(t, command.ExitFailed, r.code)
		require.Contains(t, r.stderr, "which has several: set mysql.shards, with all of them")
		cfg, err := config.Load(config.Sources{Environ: half})
		require.NoError(t, err)
		_, err = joined(t.Context(), cfg, 0, st)
		require.ErrorContains(t, err, "which has several: set mysql.shards, with all of them", "reconcile would take the records of all targets")
	}
	r = run([]string{"NOTYET_MYSQL_SHARDS=" + second + "," + first}, "list")
	require.Contains(t, r.stderr, "put the entries in their order")
	require.Equal(t, []api.ShardRule{}, list().Rules)

	r = run(both, "shards", "move", "billing.*", "1", "--dry-run")
	require.Equal(t, command.ExitDone, r.code, r.stderr)
	require.Contains(t, r.stdout, "billing.*")
	require.Empty(t, list().Rules, "a dry run moves nothing")
	for range 2 {
		r = run(both, "shards", "move", "billing.*", "1")
		require.Equal(t, command.ExitDone, r.code, r.stderr)
	}
	require.Contains(t, r.stdout, "in database 1 already")
	require.Equal(t, []api.ShardRule{{Pattern: "billing.*", Former: 0, Shard: 1}}, list().Rules)
	require.Contains(t, run(both, "audit", "list", "--json").stdout, `"move targets"`)
	for _, bad := range [][]string{{"a", "2"}, {"[", "1"}, {"a", "1", "--part", "2/1"}, {"a", "1", "--part", "x"}} {
		r = run(both, append([]string{"shards", "move"}, bad...)...)
		require.Equal(t, command.ExitUsage, r.code, r.stderr)
	}
	require.Equal(t, command.ExitUsage, run(both, "shards", "drain", "0").code)
	r = run(both, "shards", "drain", "1")
	require.Equal(t, command.ExitDone, r.code, r.stderr)
	require.Equal(t, api.ShardRule{Pattern: "*", Former: 1, Shard: 0}, list().Rules[1])
	all := list().Shards
	require.Len(t, all, 2)
	require.True(t, all[0].Up && all[1].Up)

	for _, bad := range []string{"0", "2", "-1"} {
		require.Equal(t, command.ExitUsage, run(both, "shards", "remove", bad).code, bad)
	}
	three := []string{both[0] + ",sqlite:" + t.TempDir() + "/notyet.db", both[1]}
	r = run(three, "shards", "remove", "1")
	require.Equal(t, command.ExitUsage, r.code)
	require.Contains(t, r.stderr, "remove 2 first")
	for range 2 {
		r = run(both, "shards", "remove", "1")
		require.Equal(t, command.ExitDone, r.code, r.stderr)
		require.Contains(t, r.stdout, "database 1: removed; take its entry out of mysql.shards")
	}
	require.Contains(t, run(both, "list").stderr, "the database was removed from the installation: take entry 1 out of mysql.shards")
	require.Contains(t, run(both, "shards", "add", "1").stderr, "the database was removed from the installation")
	require.Equal(t, command.ExitFailed, run([]string{"NOTYET_MYSQL_DSN=" + second}, "list").code)
	r = run(one, "shards", "list", "--json") // with one entry again
	require.Equal(t, command.ExitDone, r.code, r.stderr)
	require.Contains(t, r.stdout, `"version": 3`)
	require.NotContains(t, r.stdout, `"missing"`)
	require.Contains(t, run(one, "audit", "list", "--json").stdout, `"remove database"`)
	both[0] = "NOTYET_MYSQL_SHARDS=" + first + ",sqlite:" + t.TempDir() + "/notyet.db"
	for _, does := range []string{"add", "remove"} { // another database
		r = run(both, "shards", does, "1")
		require.Equal(t, command.ExitDone, r.code, r.stderr)
	}
	require.Equal(t, command.ExitDone, run(one, "list").code)
}
