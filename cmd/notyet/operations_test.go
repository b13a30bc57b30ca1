package main

import (
	"encoding/json"
	"fmt"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/zap"

	"github.com/notyet/notyet/api"
	"github.com/notyet/notyet/internal/command"
	"github.com/notyet/notyet/store"
	"github.com/notyet/notyet/store/admin"
)

// begunBy runs a command that begins an operation, and returns the operation.
func begunBy(t *testing.T, run func(args ...string) result, args ...string) (o api.Operation) {
	t.Helper()
	r := run(append(args, "--async", "--json")...)
	require.Equal(t, command.ExitDone, r.code, "%v: %s", args, r.stderr)
	require.NoError(t, json.Unmarshal([]byte(r.stdout), &o))
	require.Equal(t, admin.OperationRuns, o.State)
	require.NotZero(t, o.ID)
	return o
}

// Each change of many that the API makes as an operation is begun, shown and listed by a command. The services make it.
func TestOperationsFromTheShell(t *testing.T) {
	d := startDev(t)
	cmd := func(args ...string) result { return d.cmd(t, args...) }
	ended := func(id int64) (o api.Operation) {
		require.Eventually(t, func() bool {
			r := cmd("operations", "show", strconv.FormatInt(id, 10), "--json")
			require.Equal(t, command.ExitDone, r.code, r.stderr)
			require.NoError(t, json.Unmarshal([]byte(r.stdout), &o))
			return o.State != admin.OperationRuns
		}, time.Minute, 20*time.Millisecond)
		require.Equal(t, admin.OperationDone, o.State, o.Why)
		return o
	}
	require.Contains(t, cmd("operations", "list").stdout, "no operations")
	for _, id := range []string{"a", "b", "c"} {
		require.Equal(t, command.ExitDone, cmd("schedule", "mails", id, "--delay", "1h", "--tag", "campaign", "--value", "v").code)
	}
	for _, id := range []string{"a", "b", "c"} {
		require.Eventually(t, func() bool { return cmd("get", "mails", id).code == command.ExitDone }, time.Minute, 20*time.Millisecond)
	}
	r := cmd("cancel", "--tag", "campaign", "--async")
	require.Equal(t, command.ExitDone, r.code, r.stderr)
	var id int64
	_, err := fmt.Sscanf(r.stdout, "operation %d goes on by itself: `notyet operations show", &id)
	require.NoError(t, err, r.stdout)
	o := ended(id)
	require.Equal(t, []any{"cancel-many", int64(3), int64(3)}, []any{o.What, o.Done, o.Total})
	require.JSONEq(t, `{"tag":"campaign"}`, string(o.Request))
	require.Contains(t, cmd("get", "mails", "a").stdout, "cancelled")
	shown := cmd("operations", "show", strconv.FormatInt(id, 10)).stdout
	require.Regexp(t, `(?s)state +done\ndone +3 of 3\nresult +cancelled 3, too late 0\n`, shown)

	d.unreported(t, "dead")
	o = ended(begunBy(t, cmd, "deadletter", "replay", "-t", "orders").ID)
	require.Equal(t, []api.Figure{{Name: "replayed", N: 1}, {Name: "skipped"}}, o.Figures())
	require.Eventually(t, func() bool { return strings.Contains(cmd("deadletter", "list", "-t", "orders").stdout, "exhausted") }, time.Minute, 20*time.Millisecond)
	o = ended(begunBy(t, cmd, "deadletter", "replay", "1").ID)
	require.Equal(t, map[string]int64{"it has been replayed already": 1}, o.Skips())
	require.Contains(t, cmd("operations", "show", strconv.FormatInt(o.ID, 10)).stdout, "skipped      1: it has been replayed already")
	o = ended(begunBy(t, cmd, "deadletter", "purge", "--all").ID)
	require.Equal(t, []api.Figure{{Name: "deleted", N: 1}}, o.Figures())

	require.Equal(t, command.ExitDone, cmd("timer", "set", "orders", "hourly", "--cron", "0 * * * *", "--value", "v").code)
	o = ended(begunBy(t, cmd, "timer", "backfill", "orders", "hourly", "--from", "150m").ID)
	require.Equal(t, []any{"orders", "hourly", o.Total}, []any{o.Topic, o.Timer, o.Done})
	require.NotZero(t, o.Figures()[0].N)

	list := cmd("operations", "list").stdout
	require.Equal(t, 6, strings.Count(list, "\n"), "a line each, under the headings: %s", list)
	require.Contains(t, cmd("operations", "list", "-n", "1").stdout, "backfill")
	r = cmd("operations", "stop", strconv.FormatInt(o.ID, 10))
	require.Equal(t, command.ExitFailed, r.code)
	require.Contains(t, r.stderr, "the operation has ended (done): nothing is left to be stopped")
	for _, deed := range []string{"show", "stop"} {
		r = cmd("operations", deed, "4242")
		require.Equal(t, command.ExitFailed, r.code)
		require.Contains(t, r.stderr, "there is no operation with this id")
	}
	require.Equal(t, command.ExitFailed, cmd("timer", "backfill", "orders", "none", "--from", "1h", "--async").code)
}

// Who has the database needs no service to begin an operation, and to stop one. Limits and audit are the API's.
func TestOperationsInTheDatabase(t *testing.T) {
	dsn := "sqlite:" + t.TempDir() + "/notyet.db"
	st, err := store.Open(t.Context(), store.Config{DSN: dsn}, zap.NewNop())
	require.NoError(t, err)
	require.NoError(t, st.Migrate(t.Context(), 4))
	require.NoError(t, st.Close())
	cmd := func(args ...string) result { return notyet(t, []string{"NOTYET_MYSQL_DSN=" + dsn}, "", args...) }
	for range admin.RunningOperations - 1 {
		begunBy(t, cmd, "cancel", "-t", "orders")
	}
	o := begunBy(t, cmd, "deadletter", "purge", "--kind", "rejected")
	require.Contains(t, o.Who, "@")
	r := cmd("deadletter", "replay", "--all", "--async")
	require.Equal(t, command.ExitFailed, r.code)
	require.Contains(t, r.stderr, "10 operations are running for you")
	id := strconv.FormatInt(o.ID, 10)
	r = cmd("operations", "stop", id)
	require.Equal(t, command.ExitDone, r.code, r.stderr)
	require.Regexp(t, `state +stopped`, r.stdout)
	r = cmd("operations", "stop", id)
	require.Equal(t, command.ExitFailed, r.code)
	require.Contains(t, r.stderr, "the operation has ended (stopped): nothing is left to be stopped")
	require.Contains(t, cmd("operations", "show", "4242").stderr, "there is no operation with this id")
	require.Equal(t, admin.RunningOperations-1, strings.Count(cmd("operations", "list").stdout, "running"))
	require.Contains(t, cmd("audit", "list", "--what", "operation stopped").stdout, "operation stopped")
	require.Contains(t, cmd("audit", "list", "--what", "operation").stdout, "purge")
}
