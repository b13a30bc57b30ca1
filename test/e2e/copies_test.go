package e2e

import (
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kgo"
	"go.uber.org/zap"

	"github.com/notyet/notyet/internal/sendlog"
	"github.com/notyet/notyet/schemas"
	"github.com/notyet/notyet/store"
	"github.com/notyet/notyet/test/mysqltest"
	"github.com/notyet/notyet/test/recordtest"
)

// sets replaces variables of the processes, and adds others.
func (c *cluster) sets(pairs ...string) {
	for _, pair := range pairs {
		name, value, _ := strings.Cut(pair, "=")
		c.env = slices.DeleteFunc(slices.Clone(c.env), func(old string) bool { return strings.HasPrefix(old, name+"=") })
		if value != "" {
			c.env = append(c.env, pair)
		}
	}
}

// refused runs a command that ends by itself with such words.
func (c *cluster) refused(args []string, words ...string) {
	c.t.Helper()
	cmd := exec.CommandContext(c.t.Context(), c.binary, args...)
	cmd.Env = append(slices.Clone(c.env), "NOTYET_HTTP_ADDR=127.0.0.1:0", "NOTYET_SENDLOG_DIR="+filepath.Join(c.t.TempDir(), "sendlog"))
	out, err := cmd.CombinedOutput()
	failed, ok := errors.AsType[*exec.ExitError](err)
	require.True(c.t, ok, "%v: %s", err, out)
	require.Equal(c.t, 1, failed.ExitCode(), "%s", out)
	for _, word := range words {
		require.Contains(c.t, string(out), word)
	}
}

// copyOf is the same installation on a copy of its database.
func (c *cluster) copyOf() *cluster {
	c.t.Helper()
	b, s := c.backUp(), *c.stack
	s.dsn = mysqltest.Fresh(c.t)
	var err error
	s.store, err = store.Open(c.t.Context(), store.Config{DSN: mysqltest.Patient(c.t, s.dsn)}, s.log)
	require.NoError(c.t, err)
	c.t.Cleanup(func() { _ = s.store.Close() })
	require.NoError(c.t, s.store.Migrate(c.t.Context(), usualSlots))
	s.restore(b)
	out := &cluster{stack: &s, binary: c.binary, dir: c.t.TempDir(), env: c.env}
	out.sets("NOTYET_MYSQL_DSN=" + s.dsn)
	return out
}

// TestACopyOfTheDatabase: on real servers, a copy of a database is started beside the original, is
// put into its place while a dispatcher is left there, and forgets whose it is.
func TestACopyOfTheDatabase(t *testing.T) {
	if os.Getenv("NOTYET_LONG") == "" {
		t.Skip("NOTYET_LONG=1 runs it: a scanner waits for half a minute")
	}
	for _, name := range []string{"NOTYET_KAFKA_BROKERS", "NOTYET_MYSQL_DSN", "NOTYET_REDIS_ADDRS", "NOTYET_ZOOKEEPER_SERVERS"} {
		if os.Getenv(name) == "" {
			t.Skip(name + " is not set")
		}
	}
	t.Parallel()
	c := clusterOn(t, newStackIn(t, true, true, 4, usualSlots))
	c.sets("NOTYET_ZOOKEEPER_SERVERS=", "NOTYET_ZOOKEEPER_ROOT=", "NOTYET_REDIS_ADDRS=", "NOTYET_REDIS_CLUSTER=", "NOTYET_REDIS_MASTER=", "NOTYET_REDIS_PREFIX=",
		"NOTYET_ELECTION_KIND=mysql", "NOTYET_INDEX_KIND=mysql", "NOTYET_WAKES_TOPIC="+c.wakes(), "NOTYET_CANCELS_TOPIC="+c.name+".cancels", "NOTYET_MIGRATE_REPLICATION=1")
	c.notyet("migrate")
	target := c.name + ".target"
	c.judging(1, target)
	task := func(id string, headers ...string) *kgo.Record {
		return keyed(request(c.intake, target, append(headers, schemas.HeaderID, id)...), id, "v")
	}
	sc, forgotten := c.spawn("scanner", "scanner"), c.spawn("forgotten", "dispatcher")
	c.publish(task("kept", schemas.HeaderDelay, "1h"), task("cancelled", schemas.HeaderDelay, "1h"), task("before", schemas.HeaderDelay, "10ms"))
	c.await(target, 1)
	c.eventually("all is stored and settled", time.Minute, func() bool { return c.tasks() == 3 && c.state(target, "before") == "delivered" })
	restored := c.copyOf()
	require.Equal(t, 3, restored.tasks())

	// Nobody has announced the copy.
	c.publish(task("cancelled", schemas.HeaderOp, "cancel"), task("meanwhile", schemas.HeaderDelay, "10ms"))
	restored.refused([]string{"scanner"}, "work on another copy of this database", "docs/recovery.md")
	c.await(target, 2)
	require.Equal(t, "cancelled", c.state(target, "cancelled"))

	// The wrong order: reconcile is for the time after the scanners.
	dir := t.TempDir()
	empty, err := sendlog.Open(dir, sendlog.Config{}, zap.NewNop())
	require.NoError(t, err)
	require.NoError(t, empty.Close())
	reconcile := []string{"deadletter", "reconcile", "--send-log", dir}
	restored.refused(reconcile, "scanners are at work")
	sc.stop()
	require.False(t, forgotten.hasSaid("another copy"))
	restored.notyet(reconcile...)
	require.Error(t, <-forgotten.done, "it ends by itself")
	forgotten.done <- nil
	const taken = "another copy of this database has taken its place"
	require.True(t, forgotten.hasSaid(taken))
	for _, service := range []string{"scanner", "dispatcher"} {
		c.refused([]string{service}, taken, "notyet deadletter reconcile")
	}
	require.Equal(t, "cancelled", restored.state(target, "cancelled"))

	sc, d := restored.spawn("scanner", "scanner"), restored.spawn("dispatcher", "dispatcher")
	c.publish(task("kept", schemas.HeaderOp, "fire"), task("cancelled", schemas.HeaderOp, "fire"))
	c.await(target, 4) // the log of the forgotten one is not there: one comes again
	keys := map[string][]string{}
	for _, r := range c.arrivals(target) {
		id := recordtest.Header(r, schemas.HeaderID)
		keys[id] = append(keys[id], recordtest.Header(r, schemas.HeaderDelivery))
	}
	require.Len(t, keys, 3)
	require.Len(t, keys["before"], 1)
	require.Len(t, keys["kept"], 1)
	require.Len(t, keys["meanwhile"], 2)
	require.Equal(t, keys["meanwhile"][0], keys["meanwhile"][1])

	// A backup from before databases had an id takes that of the group, while nobody is at work.
	id, err := c.store.Installation(t.Context())
	require.NoError(t, err)
	_, err = restored.open().ExecContext(t.Context(), "DELETE FROM meta WHERE name = 'installation.id'")
	require.NoError(t, err)
	restored.refused([]string{"migrate"}, "are at work: stop")
	d.stop()
	sc.stop()
	restored.notyet("migrate")
	now, err := restored.store.Installation(t.Context())
	require.NoError(t, err)
	require.Equal(t, id, now)
}
