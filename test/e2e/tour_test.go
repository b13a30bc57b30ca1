package e2e

import (
	"bytes"
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/notyet/notyet/test/program"
)

// docs/tour.md prints these. If they are taken, the tour uses others.
const (
	printedKafka = "127.0.0.1:9092"
	printedHTTP  = "127.0.0.1:8080"
)

// variable are the parts of its outputs that differ from run to run. Everything else must
// be equal, except for empty lines at the end.
var variable = []struct{ pattern, stand string }{
	{`\d{4}-\d{2}-\d{2}T\d{2}:\d{2}:\d{2}\.\d{3}Z`, "INSTANT"},
	{`notyet-due=\d{13}\b`, "notyet-due=MILLIS"},
	{`\(in [0-9hms.]+\)`, "(in A WHILE)"},
	{`by local \S+@\S+`, "by local SOMEBODY"},
	{`\([0-9hms.]+ ago\)`, "(A WHILE ago)"},
	{`\b\d+ ms late\b`, "SOME ms late"},
	{`notyet-delivery=[A-Za-z0-9_-]{43}\b`, "notyet-delivery=KEY"},
	{`notyet\.intake/[0-3](/| offset )\d+\b`, "notyet.intake/PARTITION${1}OFFSET"},
	{` {2,}`, " "}, // columns are as wide as what stands in them
}

func normal(output string) string {
	for _, v := range variable {
		output = regexp.MustCompile(v.pattern).ReplaceAllString(output, v.stand)
	}
	return strings.TrimRight(output, "\n")
}

// tourStop is one command block of the tour with the output printed after it.
type tourStop struct{ commands, output string }

// tourStops finds blocks fenced as "sh tour", and those fenced as "text" right after them.
func tourStops(page string) []tourStop {
	fences := regexp.MustCompile("(?ms)^```sh tour\n(.*?)^```\n(?:\\s*^```text\n(.*?)^```\n)?")
	var out []tourStop
	for _, m := range fences.FindAllStringSubmatch(page, -1) {
		out = append(out, tourStop{m[1], m[2]})
	}
	return out
}

// TestTour runs docs/tour.md as printed, against notyet dev.
func TestTour(t *testing.T) {
	if _, err := exec.LookPath("kcat"); err != nil {
		require.NotEqual(t, "true", os.Getenv("CI"), "kcat is missing, and CI must run the tour")
		t.Skip("kcat is not installed: apt-get install kcat")
	}
	page, err := os.ReadFile(filepath.Join("..", "..", "docs", "tour.md"))
	require.NoError(t, err)
	stops := tourStops(string(page))
	require.Len(t, stops, strings.Count(string(page), "```sh tour\n"))
	require.NotEmpty(t, stops)

	d := startDev(t)
	for _, s := range stops {
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		var stdout, stderr bytes.Buffer
		cmd := exec.CommandContext(ctx, "bash", "-e", "-o", "pipefail", "-c", strings.ReplaceAll(s.commands, printedKafka, d.kafka))
		cmd.Dir, cmd.Env, cmd.Stdout, cmd.Stderr = d.dir, d.env, &stdout, &stderr
		err := cmd.Run()
		cancel()
		require.NoError(t, err, "%s\n%s%s", s.commands, &stdout, &stderr)
		require.Equal(t, normal(s.output), normal(stdout.String()), "%s\n%s", s.commands, &stderr)
	}
}

// A check that accepts anything would not notice an outdated tour.
func TestTourIsComparedStrictly(t *testing.T) {
	const printed = "2026-11-21T20:28:47.380Z succeeded  orders 4711 attempt 1, 11 ms late\n"
	require.Equal(t, normal(printed), normal("2031-01-01T00:00:00.001Z succeeded orders 4711 attempt 1, 0 ms late\n"))
	for _, other := range []string{
		"2026-11-21T20:28:47.380Z dead       orders 4711 attempt 1, 11 ms late\n",
		"2026-11-21T20:28:47.380Z succeeded  orders 4712 attempt 1, 11 ms late\n",
		"2026-11-21T20:28:47.380Z succeeded  orders 4711 attempt 2, 11 ms late\n",
		"20:28:47.380 succeeded  orders 4711 attempt 1, 11 ms late\n",
		printed + printed,
	} {
		require.NotEqual(t, normal(printed), normal(other))
	}
	stops := tourStops("a\n```sh tour\nx\ny\n```\n\n```text\nz\n```\n\n```sh tour\nw\n```\n\nwords\n\n```text\nv\n```\n")
	require.Equal(t, []tourStop{{"x\ny\n", "z\n"}, {"w\n", ""}}, stops)
}

// dev is a running notyet dev with a folder in which bin/notyet is the program.
type dev struct {
	dir, kafka string
	env        []string
}

// startDev starts notyet dev on the ports that the tour prints, or on free ones if one of them is
// taken.
func startDev(t *testing.T) dev {
	d := dev{dir: t.TempDir(), kafka: printedKafka, env: program.Environ()}
	program.In(t, d.dir)
	running, problem := program.Dev(t, d.dir, d.env)
	if strings.Contains(problem, "is in use") {
		t.Logf("%s or %s is in use: the tour runs with other ports than it prints", printedKafka, printedHTTP)
		running, problem = program.Dev(t, d.dir, d.env, program.OnFreePorts...)
		d.kafka = running.Kafka
		d.env = append(d.env, running.Env()...)
	}
	require.Empty(t, problem)
	require.Contains(t, running.Greeting, "notyet dev is ready")
	return d
}
