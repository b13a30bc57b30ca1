package main

import (
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/notyet/notyet/cmd/internal/command"
)

// without takes a variable away.
func (m team) without(name string) team {
	return team{slices.DeleteFunc(slices.Clone(m.environ), func(pair string) bool { return strings.HasPrefix(pair, name+"=") })}
}

// Dispatchers share the slots without ZooKeeper and Redis, and one that elects by ZooKeeper gets none beside them.
func TestDispatchersElectThroughTheDatabase(t *testing.T) {
	t.Parallel()
	database, broker, zookeeper := filepath.Join(t.TempDir(), "notyet.db"), kafkaCluster(t, "one"), ensemble(t)
	team := func(member string, more ...string) team {
		m := newTeam(t, database, broker, zookeeper)
		m.environ = append(m.environ, "NOTYET_DISPATCHER_MEMBER_ID="+member)
		m.environ = append(m.environ, more...)
		return m
	}
	a := team("a", "NOTYET_ELECTION_KIND=mysql", "NOTYET_INDEX_KIND=mysql").without("NOTYET_ZOOKEEPER_SERVERS").without("NOTYET_REDIS_ADDRS")
	r := notyet(t, a.environ, "", "migrate", "--set", "slots=4")
	require.Equal(t, command.ExitDone, r.code, r.stderr)
	require.Contains(t, r.stdout, "topic notyet.wakes: created")
	first := a.serve(t, "dispatcher", `"slots":[0,1,2,3]`)
	b := team("b", "NOTYET_ELECTION_KIND=mysql", "NOTYET_INDEX_KIND=mysql").without("NOTYET_ZOOKEEPER_SERVERS").without("NOTYET_REDIS_ADDRS")
	b.serve(t, "dispatcher", "took slots")
	require.Eventually(t, func() bool { return strings.Contains(first.String(), `"members":2`) }, time.Minute, 5*time.Millisecond)

	r = notyet(t, a.environ, "", "deadletter", "reconcile", "--dry-run")
	require.Equal(t, command.ExitFailed, r.code)
	require.Contains(t, r.stderr, "dispatchers are at work (in the database): stop a, b first")

	redis := team("redis", "NOTYET_ELECTION_KIND=mysql").without("NOTYET_ZOOKEEPER_SERVERS")
	for _, role := range []string{"scanner", "dispatcher", "all"} {
		r = notyet(t, redis.environ, "", role)
		require.Equal(t, command.ExitFailed, r.code)
		require.Contains(t, r.stderr, "index.kind is redis here, and mysql for services at work")
	}

	c := team("c", "NOTYET_INDEX_KIND=mysql")
	r = notyet(t, c.environ, "", "deadletter", "reconcile", "--dry-run")
	require.Contains(t, r.stderr, "dispatchers are at work (in the database): stop a, b first", "whatever the settings of the command")
	c.serve(t, "dispatcher", "election.kind is zookeeper here, and mysql for dispatchers at work")
	r = notyet(t, c.environ, "", "doctor", "--json")
	require.Contains(t, r.stdout, "dispatchers elect by mysql")
	require.Contains(t, r.stdout, "services have index.kind mysql")
}

// A command that names no ensemble notices the dispatchers that elect there.
func TestReconcileNoticesAnotherElection(t *testing.T) {
	t.Parallel()
	database, broker, zookeeper := filepath.Join(t.TempDir(), "notyet.db"), kafkaCluster(t, "one"), ensemble(t)
	m := newTeam(t, database, broker, zookeeper)
	m.environ = append(m.environ, "NOTYET_DISPATCHER_MEMBER_ID=a")
	r := notyet(t, m.environ, "", "migrate", "--set", "slots=4")
	require.Equal(t, command.ExitDone, r.code, r.stderr)
	m.serve(t, "dispatcher", `"slots":[0,1,2,3]`)
	other := team{append(m.environ, "NOTYET_ELECTION_KIND=mysql")}.without("NOTYET_ZOOKEEPER_SERVERS")
	r = notyet(t, other.environ, "", "deadletter", "reconcile", "--dry-run")
	require.Equal(t, command.ExitFailed, r.code)
	require.Contains(t, r.stderr, "election.kind is mysql here")
	require.Contains(t, r.stderr, "stop a first")
}
