package main

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/notyet/notyet/bench"
)

func measured(t *testing.T, r result) bench.Result {
	t.Helper()
	require.Equal(t, exitDone, r.code, "%s\n%s", r.stdout, r.stderr)
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
	d := startDev(t)
	plot := filepath.Join(t.TempDir(), "burst.svg")
	r := measured(t, d.cmd(t, "bench", "burst", "200", "--lead", "1s", "--json", "--label", "small", "--plot", plot, "--pids", "self="+strconv.Itoa(os.Getpid())))
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
	require.Eventually(t, func() bool { return !strings.Contains(d.cmd(t, "list", "--json").stdout, "notyet-bench") }, time.Minute, 10*time.Millisecond, "nothing stays behind")
}

func TestBenchIngestCancelsWhatItStored(t *testing.T) {
	d := startDev(t)
	r := measured(t, d.cmd(t, "bench", "ingest", "50", "--topic", "bench-in", "--json"))
	require.Positive(t, figure(t, r, "ingest_per_s"))
	require.Len(t, r.Notes, 2)
	require.Equal(t, exitDone, d.cmd(t, "watch", "-t", "bench-in", "--state", "cancelled", "--from-start", "-n", "50").code)
}

func TestBenchSteadyAndVariants(t *testing.T) {
	d := startDev(t)
	r := measured(t, d.cmd(t, "bench", "steady", "50", "--for", "1s", "--warm-up", "0s", "--json"))
	require.Positive(t, figure(t, r, "measured"))
	require.Positive(t, figure(t, r, "raw_ack_p50_us"))
	for flag, name := range map[string]string{"--ack=report": "report", "--ids": "ids", "--priorities": "priorities"} {
		r = measured(t, d.cmd(t, "bench", "sustained", flag, "--pending", "100", "--for", "1s", "--warm-up", "0s", "--json"))
		require.Equal(t, name, r.Variant)
		require.Zero(t, figure(t, r, "lost"))
		if name == "ids" {
			require.Equal(t, float64(r.Tasks), figure(t, r, "final_events"))
		}
	}
	text := d.cmd(t, "bench", "idle", "--for", "1s", "--pids", "self="+strconv.Itoa(os.Getpid()))
	require.Equal(t, exitDone, text.code)
	require.Contains(t, text.stdout, "cpu self percent")
}

func TestBenchCallbacks(t *testing.T) {
	d := startDev(t)
	r := measured(t, d.cmd(t, "bench", "callbacks", "50", "--hanging", "2", "--for", "1s", "--warm-up", "0s", "--json"))
	require.Equal(t, "hanging", r.Variant)
	require.Less(t, figure(t, r, "late_p50_ms"), figure(t, r, "late_max_ms")+1)
	for _, name := range []string{"lost", "early", "extra_copies", "not_as_sent"} {
		require.Zero(t, figure(t, r, name), name)
	}
}

func TestBenchRefusesWhatItCannotMeasure(t *testing.T) {
	d := startDev(t)
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
		"name the processes":           {"idle"},
		"--days 0: above 0":            {"history", "5", "--days", "0"},
		"is not an intake topic":       {"ingest", "5", "--intake", "nowhere"},
	} {
		r := d.cmd(t, append([]string{"bench"}, args...)...)
		require.Equal(t, exitUsage, r.code, "%v: %s", args, r.stderr)
		require.Contains(t, r.stderr, want)
	}
	r := d.cmd(t, "bench", "backlog", "5")
	require.Equal(t, exitFailed, r.code)
	require.Contains(t, r.stderr, "mysql.dsn")
	r = d.cmd(t, "bench", "burst", "5", "--set", "intake.allowed-targets=orders")
	require.Equal(t, exitFailed, r.code)
	require.Contains(t, r.stderr, "would reject the load")
}

func TestBenchReportGoesBetweenTheMarkers(t *testing.T) {
	dir := t.TempDir()
	lines, doc := filepath.Join(dir, "results.jsonl"), filepath.Join(dir, "doc.md")
	require.NoError(t, os.WriteFile(lines, []byte(`{"shape":"burst","tasks":20000,"figures":{"late_p99_ms":90}}`+"\n"), 0o600))
	require.NoError(t, os.WriteFile(doc, []byte("above\n"+reportBegin+"\nold\n"+reportEnd+"\nbelow\n"), 0o600))
	r := notyet(t, nil, "", "bench", "report", lines)
	require.Equal(t, exitDone, r.code, r.stderr)
	require.Equal(t, exitDone, notyet(t, nil, "", "bench", "report", lines, "--into", doc).code)
	text, err := os.ReadFile(doc)
	require.NoError(t, err)
	require.Equal(t, "above\n"+reportBegin+"\n\n"+r.stdout+"\n"+reportEnd+"\nbelow\n", string(text))
	require.Equal(t, exitUsage, notyet(t, nil, "", "bench", "report", lines, "--into", lines).code)
}
