package main

import (
	"context"
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/notyet/notyet/internal/command"
	"github.com/notyet/notyet/test/bench"
	"github.com/notyet/notyet/test/program"
)

func TestMain(m *testing.M) { os.Exit(program.Run(m)) }

// result is what a command line came to.
type result struct {
	code           int
	stdout, stderr string
}

// measure runs a command line of notyet-bench in this process, with nothing in the environment but what is given.
func measure(t *testing.T, environ []string, args ...string) result {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
	defer cancel()
	var out, errs program.Output // a client's goroutine may log after the command has ended
	a := &command.App{Ctx: ctx, Stdin: strings.NewReader(""), Stdout: &out, Stderr: &errs, Environ: append([]string{"HOME=/"}, environ...), Name: "notyet-bench", Program: "notyet-bench"}
	code := run(a, args)
	return result{code, out.String(), errs.String()}
}

// dev is a running notyet dev.
type dev struct{ program.Running }

func start(t *testing.T) dev {
	t.Helper()
	dir := t.TempDir()
	program.In(t, dir)
	running, problem := program.Dev(t, dir, program.Environ(), program.OnFreePorts...)
	require.Empty(t, problem)
	return dev{running}
}

func (d dev) bench(t *testing.T, args ...string) result { return measure(t, d.Env(), args...) }

func (d dev) notyet(t *testing.T, args ...string) string {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), program.Binary(t), args...)
	cmd.Env = append(program.Environ(), d.Env()...)
	out, err := cmd.Output()
	require.NoError(t, err, "%v", args)
	return string(out)
}

func measured(t *testing.T, r result) bench.Result {
	t.Helper()
	require.Equal(t, command.ExitDone, r.code, "%s\n%s", r.stdout, r.stderr)
	var out bench.Result
	require.NoError(t, json.Unmarshal([]byte(r.stdout), &out))
	require.Empty(t, out.Wrong)
	return out
}

func figure(t *testing.T, r bench.Result, name string) float64 {
	t.Helper()
	v, ok := r.Figures.Get(name)
	require.True(t, ok, "%s is not among %v", name, r.Figures)
	return v
}

func TestBenchBurst(t *testing.T) {
	d := start(t)
	plot := filepath.Join(t.TempDir(), "burst.svg")
	r := measured(t, d.bench(t, "burst", "200", "--lead", "1s", "--json", "--label", "small", "--plot", plot, "--pids", "self="+strconv.Itoa(os.Getpid())))
	require.Equal(t, "small", r.Label)
	require.Equal(t, 200, r.Tasks)
	require.Zero(t, figure(t, r, "lost"))
	require.Zero(t, figure(t, r, "early"))
	require.Zero(t, figure(t, r, "extra_copies"))
	require.Positive(t, figure(t, r, "drain_per_s"))
	require.Positive(t, figure(t, r, "raw_produce_per_s"))
	require.Positive(t, figure(t, r, "memory_self_mb"))
	text, err := os.ReadFile(plot)
	require.NoError(t, err)
	require.Contains(t, string(text), "<svg")
	require.Eventually(t, func() bool { return !strings.Contains(d.notyet(t, "list", "--json"), "notyet-bench") }, time.Minute, 10*time.Millisecond, "nothing stays behind")
}

func TestBenchIngestCancelsWhatItStored(t *testing.T) {
	d := start(t)
	r := measured(t, d.bench(t, "ingest", "50", "--topic", "bench-in", "--json"))
	require.Positive(t, figure(t, r, "ingest_per_s"))
	require.Len(t, r.Notes, 2)
	d.notyet(t, "watch", "-t", "bench-in", "--state", "cancelled", "--from-start", "-n", "50")
}

func TestBenchSteadyAndVariants(t *testing.T) {
	d := start(t)
	r := measured(t, d.bench(t, "steady", "50", "--for", "1s", "--warm-up", "0s", "--json"))
	require.Positive(t, figure(t, r, "measured"))
	require.Positive(t, figure(t, r, "raw_ack_p50_us"))
	for flag, name := range map[string]string{"--ack=report": "report", "--ids": "ids", "--priorities": "priorities"} {
		r = measured(t, d.bench(t, "sustained", flag, "--pending", "100", "--for", "1s", "--warm-up", "0s", "--json"))
		require.Equal(t, name, r.Variant)
		require.Zero(t, figure(t, r, "lost"))
		if name == "ids" {
			require.Equal(t, float64(r.Tasks), figure(t, r, "final_events"))
		}
	}
	text := d.bench(t, "idle", "--for", "1s", "--pids", "self="+strconv.Itoa(os.Getpid()))
	require.Equal(t, command.ExitDone, text.code)
	require.Contains(t, text.stdout, "cpu self percent")
}

func TestBenchCancel(t *testing.T) {
	d := start(t)
	r := measured(t, d.bench(t, "cancel", "1500", "--rate", "50", "--for", "1s", "--warm-up", "0s", "--json"))
	require.EqualValues(t, 1500, figure(t, r, "cancelled"))
	require.Positive(t, figure(t, r, "cancel_s"))
	require.Zero(t, figure(t, r, "lost"))
	require.GreaterOrEqual(t, figure(t, r, "before_late_max_ms"), figure(t, r, "before_late_p50_ms"))
}

func TestBenchAttack(t *testing.T) {
	d := start(t)
	for _, kind := range []string{bench.AttackMissing, bench.AttackExisting, bench.AttackOrigins} {
		r := measured(t, d.bench(t, "attack", kind, "20", "--other", "notyet.intake", "--rate", "50", "--for", "1s", "--warm-up", "0s", "--json"))
		require.Equal(t, kind, r.Variant)
		require.Positive(t, figure(t, r, "measured"))
		require.Zero(t, figure(t, r, "lost"))
		require.Zero(t, figure(t, r, "early"))
		require.GreaterOrEqual(t, figure(t, r, "before_late_max_ms"), figure(t, r, "before_late_p50_ms"))
	}
}

func TestBenchCallbacks(t *testing.T) {
	d := start(t)
	r := measured(t, d.bench(t, "callbacks", "50", "--hanging", "2", "--for", "1s", "--warm-up", "0s", "--json"))
	require.Equal(t, "hanging", r.Variant)
	require.Less(t, figure(t, r, "late_p50_ms"), figure(t, r, "late_max_ms")+1)
	for _, name := range []string{"lost", "early", "extra_copies", "not_as_sent"} {
		require.Zero(t, figure(t, r, name), name)
	}
}

func TestBenchRefusesWhatItCannotMeasure(t *testing.T) {
	d := start(t)
	for want, args := range map[string][]string{
		"N 0: at least 1":              {"burst", "0"},
		"--lead -1s: at least 0s":      {"burst", "5", "--lead=-1s"},
		"--value-bytes 8: at least 16": {"burst", "5", "--value-bytes", "8"},
		"write NAME=PID":               {"burst", "5", "--pids", "dispatcher"},
		"there is no process":          {"burst", "5", "--pids", "dispatcher=1073741824"},
		"--for 1ms: at least 1s":       {"steady", "5", "--for", "1ms"},
		"measured one at a time":       {"sustained", "--ids", "--priorities"},
		"--minutes 0: at least 1":      {"timers", "5", "--minutes", "0"},
		"--hanging -1: at least 0":     {"callbacks", "5", "--hanging=-1"},
		"--rate 0: at least 1":         {"cancel", "5", "--rate", "0"},
		"name the processes":           {"idle"},
		"N -1: at least 1":             {"attack", "missing", "--other=notyet.intake", "--", "-1"},
		"--days 0: above 0":            {"history", "5", "--days", "0"},
		"is not an intake topic":       {"ingest", "5", "--intake", "nowhere"},
	} {
		r := d.bench(t, args...)
		require.Equal(t, command.ExitUsage, r.code, "%v: %s", args, r.stderr)
		require.Contains(t, r.stderr, want)
	}
	r := d.bench(t, "backlog", "5")
	require.Equal(t, command.ExitFailed, r.code)
	require.Contains(t, r.stderr, "mysql.dsn")
	r = d.bench(t, "burst", "5", "--set", "intake.allowed-targets=orders")
	require.Equal(t, command.ExitFailed, r.code)
	require.Contains(t, r.stderr, "would reject the load")
}

func TestBenchReportGoesBetweenTheMarkers(t *testing.T) {
	dir := t.TempDir()
	lines, doc := filepath.Join(dir, "results.jsonl"), filepath.Join(dir, "doc.md")
	require.NoError(t, os.WriteFile(lines, []byte(`{"shape":"burst","tasks":20000,"figures":{"late_p99_ms":90}}`+"\n"), 0o600))
	require.NoError(t, os.WriteFile(doc, []byte("above\n"+reportBegin+"\nold\n"+reportEnd+"\nbelow\n"), 0o600))
	r := measure(t, nil, "report", lines)
	require.Equal(t, command.ExitDone, r.code, r.stderr)
	require.Equal(t, command.ExitDone, measure(t, nil, "report", lines, "--into", doc).code)
	text, err := os.ReadFile(doc)
	require.NoError(t, err)
	tables, runs, both := strings.Cut(r.stdout, "\nrun,tasks,")
	require.True(t, both)
	require.Equal(t, "above\n"+reportBegin+"\n\n"+tables+"\n"+reportEnd+"\nbelow\n", string(text))
	beside, err := os.ReadFile(filepath.Join(dir, "doc.csv"))
	require.NoError(t, err)
	require.Equal(t, "run,tasks,"+runs, string(beside))
	require.Contains(t, string(beside), "\nburst,20000,")
	require.Equal(t, command.ExitUsage, measure(t, nil, "report", lines, "--into", lines).code)
}
