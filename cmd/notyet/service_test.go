package main

import (
	"net"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/notyet/notyet/internal/command"
)

// Who has an address and a token alone, and no broker, schedules, cancels, stops, fires and sets
// timers through the service, and follows one task. Only what follows all needs Kafka, and says so.
func TestCommandsWithAnAddressAlone(t *testing.T) {
	d := startDev(t)
	away := []string{"NOTYET_HTTP_ADDR=" + d.http}
	run := func(code int, args ...string) string {
		t.Helper()
		r := notyet(t, away, "", args...)
		require.Equal(t, code, r.code, "%v: %s%s", args, r.stdout, r.stderr)
		return r.stdout + r.stderr
	}
	require.Contains(t, run(command.ExitDone, "schedule", "orders", "a", "--delay", "1h", "--key", "k", "--value", "v"), "scheduled a for orders")
	require.Contains(t, run(command.ExitDone, "cancel", "orders", "a", "--key", "k"), "cancelled")
	require.Contains(t, run(command.ExitFailed, "cancel", "orders", "a/unknown", "--json"), `"state":"not_found"`)
	run(command.ExitDone, "schedule", "orders", "b", "--delay", "1h", "--value", "v", "--version", "3")
	require.Contains(t, run(command.ExitFailed, "stop", "orders", "b", "--version", "2"), "stale")
	require.Contains(t, run(command.ExitDone, "fire", "orders", "b"), "fired")
	require.Contains(t, run(command.ExitDone, "fire", "orders", "b", "--no-wait"), "fire of b for orders is in notyet.intake/")
	require.Contains(t, run(command.ExitDone, "timer", "set", "orders", "nightly/1", "--cron", "30 2 * * *", "--value", "v", "--key", "k"), "next run ")
	require.Contains(t, run(command.ExitDone, "timer", "show", "orders", "nightly/1"), "enabled")
	require.Contains(t, run(command.ExitDone, "timer", "disable", "orders", "nightly/1", "--key", "k", "--version", "7"), "timer_disabled")
	require.Contains(t, run(command.ExitDone, "timer", "enable", "--topic", "orders", "--id", "nightly/1", "--key", "k"), "timer_enabled")
	require.Contains(t, run(command.ExitDone, "timer", "delete", "orders", "nightly/1", "--key", "k"), "timer_deleted")
	require.Contains(t, run(command.ExitUsage, "schedule", "orders", "c", "--delay", "soon", "--value", "v"), "delay")
	require.Contains(t, run(command.ExitDone, "schedule", "orders", "c", "--delay", "0s", "--value", "v", "--wait"), "succeeded  orders c attempt 1")
	require.Contains(t, run(command.ExitFailed, "schedule", "orders", "d", "--at", "2020-01-01T00:00:00Z", "--max-lateness", "1s", "--value", "v", "--wait", "--json"), `"state":"dead"`)
	require.Contains(t, run(command.ExitFailed, "schedule", "orders", "e", "--delay", "1h", "--value", "v", "--wait", "--timeout", "15s"), "no end by ")
	require.Contains(t, run(command.ExitDone, "watch", "orders", "c", "--until-end"), "succeeded  orders c attempt 1")
	require.Contains(t, run(command.ExitDone, "watch", "orders", "c", "--from-start", "-n", "1", "--state", "succeeded", "--json"), `"state":"succeeded"`)
	require.Contains(t, run(command.ExitFailed, "watch", "orders", "c", "-n", "1", "--timeout", "1s"), "0 of 1 events came", "what is over is not shown")
	require.Contains(t, run(command.ExitUsage, "watch", "--until-end"), "write TOPIC ID, or set kafka.brokers")
	for _, args := range [][]string{{"list", "orders"}, {"list", "-t", "orders"}, {"timer", "list", "orders"}, {"forecast", "orders"}, {"audit", "list", "orders", "a"}, {"audit", "list", "-t", "orders", "--id", "a"}} {
		require.NotContains(t, run(command.ExitDone, append(args, "--json")...), "bills")
	}
	require.Contains(t, run(command.ExitDone, "audit", "list", "orders", "a"), "cancel")
	require.Contains(t, run(command.ExitDone, "list", "bills"), "no tasks")
	require.Contains(t, run(command.ExitUsage, "list", "orders", "-t", "bills"), "name the target once")
	require.Contains(t, run(command.ExitDone, "help", "timer", "set"), "Usage: notyet timer set")
}

// A watch ends by itself: at the present end of the topic, after a time, or after a number of
// events, and says when fewer have come.
func TestWatchEnds(t *testing.T) {
	d := startDev(t)
	for _, id := range []string{"a", "b"} {
		r := d.cmd(t, "cancel", "orders", id)
		require.Equal(t, command.ExitFailed, r.code, r.stderr)
	}
	r := d.cmd(t, "watch", "--until-end", "--id", "b", "--json")
	require.Equal(t, command.ExitDone, r.code, r.stderr)
	require.Contains(t, r.stdout, `"id":"b","state":"not_found"`)
	require.NotContains(t, r.stdout, `"id":"a"`)
	r = d.cmd(t, "watch", "--until-end", "-n", "8")
	require.Equal(t, command.ExitFailed, r.code)
	require.Contains(t, r.stderr, "2 of 8 events came")
	require.Equal(t, command.ExitDone, d.cmd(t, "watch", "--until-end", "-n", "1").code)
	r = d.cmd(t, "watch", "--from-start", "--timeout", "1m", "-n", "2")
	require.Equal(t, command.ExitDone, r.code, r.stderr)
	require.Contains(t, r.stdout, "not_found")
	began := time.Now()
	require.Equal(t, command.ExitDone, d.cmd(t, "watch", "--from-start", "--timeout", "500ms").code)
	require.GreaterOrEqual(t, time.Since(began), 500*time.Millisecond)
	require.Equal(t, command.ExitFailed, d.cmd(t, "watch", "--from-start", "--timeout", "500ms", "-n", "3").code)
}

// Kafka that takes connections and says nothing is not the end of a watch.
func TestWatchOfASilentKafka(t *testing.T) {
	silent, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	t.Cleanup(func() { _ = silent.Close() })
	r := notyet(t, nil, "", "watch", "--timeout", "1m", "--kafka-brokers", silent.Addr().String())
	require.Equal(t, command.ExitFailed, r.code)
	require.Contains(t, r.stderr, "no answer from Kafka at "+silent.Addr().String())
}

// Two services on one machine want one address: the second ends with the code that its unit does
// not repeat.
func TestAnAddressInUseIsAMistake(t *testing.T) {
	taken, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	t.Cleanup(func() { _ = taken.Close() })
	m := newTeam(t, filepath.Join(t.TempDir(), "notyet.db"), kafkaCluster(t, "one"), ensemble(t))
	require.Equal(t, command.ExitDone, notyet(t, m.environ, "", "migrate").code)
	r := notyet(t, append(m.environ, "NOTYET_HTTP_ADDR="+taken.Addr().String()), "", "scanner")
	require.Equal(t, command.ExitUsage, r.code)
	require.Contains(t, r.stderr, taken.Addr().String()+" is in use: stop what listens there, or set http.addr")
}
