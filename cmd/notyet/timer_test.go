package main

import (
	"encoding/json"
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/notyet/notyet/api"
	"github.com/notyet/notyet/internal/command"
	"github.com/notyet/notyet/schemas"
	"github.com/notyet/notyet/test/recordtest"
)

// answered is the event that a command has printed.
func answered(t *testing.T, r result, state schemas.State) (e struct {
	State schemas.State
	ID    string
	Due   int64
}) {
	t.Helper()
	require.NoError(t, json.Unmarshal([]byte(r.stdout), &e), r.stderr)
	require.Equal(t, state, e.State, r.stdout)
	return e
}

func TestTimersFromTheShell(t *testing.T) {
	d := startDev(t)
	r := d.cmd(t, "timer", "set", "-t", "orders", "--id", "tick", "--cron", "* * * * * *", "--key", "k", "--value", "run", "-H", "x=1", "--json")
	require.Equal(t, command.ExitDone, r.code, r.stderr)
	due := answered(t, r, schemas.StateTimerSet).Due
	run := first(t, d.kafka, "orders")
	require.Equal(t, "tick", recordtest.Header(run, schemas.HeaderTimer))
	require.Equal(t, fmt.Sprintf("tick@%d", due), recordtest.Header(run, schemas.HeaderID))
	require.Equal(t, "run", string(run.Value))
	require.GreaterOrEqual(t, run.Timestamp.UnixMilli(), due)

	far := fmt.Sprintf("tick@%d", time.Now().Add(30*time.Second).Truncate(time.Second).UnixMilli())
	require.Equal(t, command.ExitDone, d.cmd(t, "get", "-t", "orders", "--id", far).code, "a run is a task before it is due")

	r = d.cmd(t, "timer", "disable", "-t", "orders", "--id", "tick", "--key", "k", "--json")
	answered(t, r, schemas.StateTimerDisabled)
	require.Equal(t, command.ExitFailed, d.cmd(t, "get", "-t", "orders", "--id", far).code, "taken away by the time of the answer")
	var list []api.Timer
	require.NoError(t, json.Unmarshal([]byte(d.cmd(t, "timer", "list", "--json").stdout), &list))
	require.Len(t, list, 1)
	require.Equal(t, []string{"tick", "disabled", "* * * * * *"}, []string{list[0].ID, list[0].State, list[0].Cron})
	require.Contains(t, d.cmd(t, "timer", "list", "-t", "orders").stdout, "* * * * * *")
	require.Contains(t, d.cmd(t, "timer", "list", "-t", "other").stdout, "no timers")

	answered(t, d.cmd(t, "timer", "enable", "-t", "orders", "--id", "tick", "--key", "k", "--json"), schemas.StateTimerEnabled)
	r = d.cmd(t, "timer", "show", "-t", "orders", "--id", "tick")
	require.Equal(t, command.ExitDone, r.code, r.stderr)
	require.Contains(t, r.stdout, "state        enabled\n")
	require.Contains(t, r.stdout, "header       x=1\n")
	require.Contains(t, r.stdout, "value        run\n")
	var shown api.Timer
	require.NoError(t, json.Unmarshal([]byte(d.cmd(t, "timer", "get", "-t", "orders", "--id", "tick", "--json").stdout), &shown))
	require.Equal(t, "run", *shown.Value)

	answered(t, d.cmd(t, "timer", "delete", "-t", "orders", "--id", "tick", "--key", "k", "--json"), schemas.StateTimerDeleted)
	r = d.cmd(t, "timer", "delete", "-t", "orders", "--id", "tick", "--key", "k", "--json")
	require.Equal(t, command.ExitFailed, r.code)
	answered(t, r, schemas.StateNotFound)
	require.Equal(t, command.ExitFailed, d.cmd(t, "timer", "show", "-t", "orders", "--id", "tick").code)
}

// TestRunsFromTheShell: one now, and those of a range, each delivered once, of a timer that is disabled.
func TestRunsFromTheShell(t *testing.T) {
	d := startDev(t)
	answered(t, d.cmd(t, "timer", "set", "orders", "a/b", "--cron", "0 * * * *", "--key", "k", "--value", "run", "--max-lateness", "1m", "--json"), schemas.StateTimerSet)
	answered(t, d.cmd(t, "timer", "disable", "-t", "orders", "a/b", "--key", "k", "--json"), schemas.StateTimerDisabled)
	r := d.cmd(t, "timer", "run", "orders", "a/b", "--json")
	require.Equal(t, command.ExitDone, r.code, r.stderr)
	var made api.TimerRun
	require.NoError(t, json.Unmarshal([]byte(r.stdout), &made))
	require.Equal(t, api.TimerRun{Topic: "orders", Timer: "a/b", ID: fmt.Sprintf("a/b@%d", made.At), At: made.At, Made: true}, made)
	run := first(t, d.kafka, "orders")
	require.Equal(t, []string{made.ID, "a/b", "run"}, []string{recordtest.Header(run, schemas.HeaderID), recordtest.Header(run, schemas.HeaderTimer), string(run.Value)})
	r = d.cmd(t, "timer", "run", "-t", "orders", "--id", "a/b", "--at", fmt.Sprint(made.At))
	require.Equal(t, command.ExitDone, r.code, r.stderr)
	require.Equal(t, "was there "+made.ID+" of orders\n", r.stdout)

	to := time.Now().Truncate(time.Hour)
	span := []string{"timer", "backfill", "orders", "a/b", "--from", to.Add(-5 * time.Hour).Format(time.RFC3339), "--to", to.Format(time.RFC3339)}
	r = d.cmd(t, append(span, "--dry-run")...)
	require.Equal(t, "would make 5, were there 0, still to come 0, forgotten 0\n", r.stdout, r.stderr)
	r = d.cmd(t, append(span, "--json")...)
	require.JSONEq(t, `{"made":5,"existing":0,"coming":0,"forgotten":0,"before_set":5}`, r.stdout, r.stderr)
	r = d.cmd(t, append(span, "--json")...)
	require.JSONEq(t, `{"made":0,"existing":5,"coming":0,"forgotten":0,"before_set":5}`, r.stdout, r.stderr)
	for hour, run := range records(t, d.kafka, "orders", 6)[1:] {
		due := to.Add(time.Duration(hour-5) * time.Hour).UnixMilli()
		require.Equal(t, []string{fmt.Sprintf("a/b@%d", due), fmt.Sprint(due)}, []string{recordtest.Header(run, schemas.HeaderID), recordtest.Header(run, schemas.HeaderDue)}, "the oldest first")
	}

	r = d.cmd(t, "timer", "audit", "orders", "a/b", "--from", to.Add(-5*time.Hour).Format(time.RFC3339), "--to", to.Add(2*time.Hour).Format(time.RFC3339), "--json")
	require.Equal(t, command.ExitDone, r.code, r.stderr)
	var audited api.TimerAudit
	require.NoError(t, json.Unmarshal([]byte(r.stdout), &audited))
	require.Equal(t, []int{7, 5, 5}, []int{len(audited.Runs), audited.Made, audited.Late})
	require.Equal(t, "not_expected", audited.Runs[6].State)
	require.Contains(t, d.cmd(t, "timer", "audit", "-t", "orders", "--id", "a/b", "--from", "6h").stdout, "known to be late 5, not known ")

	for _, args := range [][]string{{"run", "orders", "none"}, {"audit", "orders", "none"}, {"backfill", "orders", "none", "--from", "1h"}} {
		require.Equal(t, command.ExitFailed, d.cmd(t, append([]string{"timer"}, args...)...).code, args)
	}
	for _, args := range [][]string{
		{"run", "orders"}, {"run"}, {"run", "orders", "a/b", "--id", "a/b"}, {"run", "orders", "a/b", "--at", "x"}, {"run", "orders", "a/b", "--at", "2099-01-01T00:00:00Z"},
		{"audit", "orders"}, {"audit", "orders", "a/b", "--from", "1h", "--to", "2h"}, {"backfill", "orders", "a/b"}, {"backfill", "orders", "a/b", "--from", "1h", "--to", "2h"},
	} {
		r := d.cmd(t, append([]string{"timer"}, args...)...)
		require.Equal(t, command.ExitUsage, r.code, "%v: %s%s", args, r.stdout, r.stderr)
	}
}

func TestTimerPreview(t *testing.T) {
	preview := func(args ...string) result {
		return notyet(t, nil, "", append([]string{"timer", "preview"}, args...)...)
	}
	r := preview("--cron", "30 2 * * *", "--timezone", "Europe/Berlin", "--from", "2027-03-27T12:00:00Z", "-n", "2")
	require.Equal(t, command.ExitDone, r.code, r.stderr)
	require.Regexp(t, `2027-03-28T03:00:00\+02:00\s+2027-03-28T01:00:00Z\s+1806195600000\s+moved by daylight saving\n`, r.stdout)
	require.Regexp(t, `2027-03-29T02:30:00\+02:00\s+2027-03-29T00:30:00Z\s+1806280200000\n`, r.stdout)
	r = preview("--every", "36h", "--from", "2027-01-01T08:00:00Z", "-n", "1", "--json")
	require.JSONEq(t, `{"runs":[{"at":1798790400000,"local":"2027-01-01T08:00:00Z"}]}`, r.stdout)
	for _, bad := range [][]string{{}, {"--cron", "0 0 30 2 *"}, {"--cron", "@daily", "--every", "1h"}, {"--cron", "@daily", "-n", "0"}, {"--cron", "@daily", "-n", "1001"}, {"--every", "10ms"}} {
		require.Equal(t, command.ExitUsage, preview(bad...).code, "%v", bad)
	}
}

func TestBadTimersAreAMistakeOfTheCaller(t *testing.T) {
	for _, bad := range [][]string{
		{"--cron", "61 * * * *"}, {"--every", "1h", "--misfire", "never"}, {"--every", "1h", "--overlap", "skip"}, {"--every", "1h", "--version", "x"},
		{"--every", "1h", "-H", "notyet-at=1"}, {"--every", "1h", "-H", "x"},
	} {
		r := notyet(t, []string{"NOTYET_KAFKA_BROKERS=127.0.0.1:1"}, "", append([]string{"timer", "set", "-t", "orders", "--id", "a", "--value", "v"}, bad...)...)
		require.Equal(t, command.ExitUsage, r.code, "%v: %s", bad, r.stderr)
	}
}
