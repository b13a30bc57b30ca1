package main

import (
	"context"
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/notyet/notyet/internal/command"
	"github.com/notyet/notyet/internal/config"
	"github.com/notyet/notyet/test/program"
)

// asProgram, set in the environment, makes the test binary the program itself, for tests that need
// a process to kill.
const asProgram = "NOTYET_TEST_AS_PROGRAM"

func TestMain(m *testing.M) {
	if os.Getenv(asProgram) != "" {
		main()
		return
	}
	os.Exit(m.Run())
}

// result is what a command line came to.
type result struct {
	code           int
	stdout, stderr string
}

// notyet runs a command line in this process, with nothing in the environment but what is given.
func notyet(t *testing.T, environ []string, stdin string, args ...string) result {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
	defer cancel()
	var out, errs program.Output // a client's goroutine may log after the command has ended
	a := &app{&command.App{Ctx: ctx, Stdin: strings.NewReader(stdin), Stdout: &out, Stderr: &errs, Environ: append([]string{"HOME=/"}, environ...), Name: "notyet", Program: "notyet"}}
	code := a.run(args)
	return result{code, out.String(), errs.String()}
}

// dev is a running notyet dev.
type dev struct {
	kafka, http string
	environ     []string // that makes other commands find it
	out, errs   *program.Output
	stop        func() int // answers the exit code
}

func startDev(t *testing.T, args ...string) *dev {
	t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	d := &dev{out: &program.Output{}, errs: &program.Output{}}
	a := &app{&command.App{Ctx: ctx, Stdin: strings.NewReader(""), Stdout: d.out, Stderr: d.errs, Name: "notyet", Program: "bin/notyet", Environ: []string{
		"HOME=/", // what points at real servers must not matter:
		"NOTYET_KAFKA_BROKERS=127.0.0.1:1", "NOTYET_MYSQL_DSN=x:y@tcp(127.0.0.1:1)/z", "NOTYET_REDIS_ADDRS=127.0.0.1:1", "NOTYET_ZOOKEEPER_SERVERS=!", "NOTYET_SLOTS=0",
		"NOTYET_WINDOW=1h",
	}}}
	ended := make(chan int, 1)
	go func() {
		ended <- a.run(append([]string{"dev", "--kafka-addr", "127.0.0.1:0", "--http-addr", "127.0.0.1:0"}, args...))
	}()
	stop := sync.OnceValue(func() int { cancel(); return <-ended })
	t.Cleanup(func() { require.Equal(t, command.ExitDone, stop(), "dev's log: %s", d.errs) })
	d.stop = stop
	require.Eventually(t, func() bool { return d.greeted() || len(ended) > 0 }, time.Minute, time.Millisecond)
	require.True(t, d.greeted(), "dev ended: %s", d.errs)
	return d
}

// greeted reads the addresses from what dev has printed.
func (d *dev) greeted() bool {
	text := d.out.String()
	if !strings.Contains(text, "kcat -C") {
		return false
	}
	for line := range strings.SplitSeq(text, "\n") {
		words := strings.Fields(line)
		switch {
		case len(words) > 1 && words[0] == "Kafka":
			d.kafka = words[1]
		case len(words) > 1 && words[0] == "HTTP":
			d.http = strings.TrimPrefix(words[1], "http://")
		}
	}
	d.environ = []string{"NOTYET_KAFKA_BROKERS=" + d.kafka, "NOTYET_HTTP_ADDR=" + d.http}
	return true
}

// cmd runs a command against the running dev.
func (d *dev) cmd(t *testing.T, args ...string) result {
	t.Helper()
	return notyet(t, d.environ, "", args...)
}

func TestAnExportIsForItsUserAlone(t *testing.T) {
	path := t.TempDir() + "/letters.ndjson"
	r := notyet(t, nil, "", "deadletter", "export", "--http-addr", "127.0.0.1:1", "-o", path)
	require.Equal(t, command.ExitFailed, r.code, "there is no service")
	info, err := os.Stat(path)
	require.NoError(t, err)
	require.Equal(t, os.FileMode(0o600), info.Mode().Perm())
}

func TestExitCodes(t *testing.T) {
	nowhere := []string{"NOTYET_KAFKA_BROKERS=127.0.0.1:1", "NOTYET_HTTP_ADDR=127.0.0.1:1"}
	file := filepath.Join(t.TempDir(), "notyet.yaml")
	require.NoError(t, os.WriteFile(file, []byte("kafka: {brokers: [127.0.0.1:1]}\nwrong: 1\n"), 0o600))
	sqlite := "sqlite:" + t.TempDir() + "/notyet.db"
	for _, c := range []struct {
		args    []string
		environ []string
		stdin   string
		code    int
		stdout  string // a part of it
		stderr  string
	}{
		{args: []string{"--help"}, code: 0, stdout: "deadletter"},
		{args: []string{"schedule", "--help"}, code: 0, stdout: "Examples:"},
		{args: []string{"version"}, code: 0, stdout: "notyet 0.1.0"},
		{args: []string{"version", "--json"}, code: 0, stdout: `"version": "0.1.0`},
		{args: []string{"--version"}, code: 0, stdout: "notyet 0.1.0"},
		{args: []string{"bench", "burst", "5"}, code: 1, stderr: "notyet-bench is neither beside this program nor in PATH"},

		{args: nil, code: 2, stderr: "expected one of"},
		{args: []string{"schedul"}, code: 2, stderr: `did you mean "schedule"?`},
		{args: []string{"get", "--topic", "a"}, code: 2, stderr: "--id"},
		{args: []string{"get", "a"}, code: 2, stderr: "name target and id once: TOPIC ID, or --topic"},
		{args: []string{"get", "a", "b", "--id", "c"}, code: 2, stderr: "name target and id once"},
		{args: []string{"get", "-t", "a", "b", "c"}, code: 2, stderr: "name target and id once"},
		{args: []string{"get", "a", ""}, code: 2, stderr: "an argument is empty"},
		{args: []string{"get", "a", "b", "c"}, code: 2, stderr: "unexpected argument c"},
		{args: []string{"get", "https://shop.example/", "b"}, code: 2, stderr: `target "https://shop.example/" has more than an origin: write https://shop.example`},
		{args: []string{"timer", "show", "a"}, code: 2, stderr: "name target and id once"},
		{args: []string{"timer", "set", "a b", "c", "--every", "1h", "--value", "x"}, code: 2, stderr: "is not a topic name"},
		{args: []string{"cancel", "a", "--yes"}, code: 2, stderr: "--id"},
		{args: []string{"cancel", "a", "--id-prefix", "b"}, code: 2, stderr: "--id"},
		{args: []string{"stop", "a"}, code: 2, stderr: "write TOPIC ID"},
		{args: []string{"schedule", "a", "b", "--url", "https://shop.example/x", "--delay", "1s", "--value", "x"}, code: 2, stderr: "name target and id once"},
		{args: []string{"get", "-t", "a", "--id", "b", "--jsn"}, code: 2, stderr: "notyet get --help"},
		{args: []string{"schedule", "-t", "a"}, code: 2, stderr: "--at or --delay"},
		{args: []string{"schedule", "-t", "a", "--at", "1", "--delay", "1s"}, code: 2, stderr: "can't be used together"},
		{args: []string{"schedule", "-t", "a", "--delay", "1s", "--value", "x", "--null-value"}, code: 2, stderr: "can't be used together"},
		{args: []string{"schedule", "-t", "a", "--delay", "soon", "--value", "x"}, code: 2, stderr: `notyet-delay "soon" is not a duration`},
		{args: []string{"schedule", "-t", "notyet.results", "--delay", "1s", "--value", "x"}, code: 2, stderr: "internal topic"},
		{args: []string{"schedule", "-t", "a", "--delay", "1s", "--value", "x", "-H", "novalue"}, code: 2, stderr: "NAME=VALUE"},
		{args: []string{"schedule", "-t", "a", "--delay", "1s", "--value", "x", "-H", "Notyet-Op=cancel"}, code: 2, stderr: "starts with notyet-"},
		{args: []string{"schedule", "-t", "a", "--delay", "1s", "--value", "x", "--version", "one"}, code: 2, stderr: "whole number"},
		{args: []string{"schedule", "-t", "a", "--delay", "1s", "--value-file", "/nowhere"}, code: 2, stderr: "--value-file"},
		{args: []string{"schedule", "-t", "a", "--delay", "1s", "--value", "x", "--intake", "other"}, code: 2, stderr: "the configuration (intake.topics) has notyet.intake"},
		{args: []string{"schedule", "-t", "a", "--delay", "1s", "--value", "x", "--wait", "--events", "none"}, code: 2, stderr: "--wait needs"},
		{args: []string{"schedule", "-t", "a", "--delay", "1s", "--value", "", "--key", "", "--id", ""}, code: 2, stderr: "--id is empty: give it a value, or leave it out"},
		{args: []string{"get", "-t", "a", "--id", ""}, code: 2, stderr: "--id is empty"},
		{args: []string{"cancel", "-t", "a", "--id="}, code: 2, stderr: "Try: notyet cancel --help"},
		{args: []string{"fire", "-t", "", "--id", "x"}, code: 2, stderr: "--topic is empty"},
		{args: []string{"watch", "--id", ""}, code: 2, stderr: "--id is empty"},
		{args: []string{"deadletter", "purge", "-t", "a", "--task-id", ""}, code: 2, stderr: "--task-id is empty"},
		{args: []string{"schedule", "-t", "a", "--at", "1763760000", "--value", "x"}, code: 2, stderr: `notyet-at "1763760000" is below 100000000000, so it is Unix seconds by mistake: write Unix milliseconds: 1763760000000`},
		{args: []string{"schedule", "-t", "a", "--at", "2027-01-31T08:00", "--value", "x"}, code: 2, stderr: "is a local time without a time zone"},
		{args: []string{"schedule", "-t", "a", "--at", "2027-01-31T08:00", "--timezone", "Mars/North", "--value", "x"}, code: 2, stderr: "notyet-timezone \"Mars/North\" is not a time zone"},
		{args: []string{"list", "--from", "2027-02-29T00:00:00Z"}, code: 2, stderr: "February 2027 has 28 days"},
		{args: []string{"list", "--from", "1763760000"}, code: 2, stderr: `--from "1763760000" is below 100000000000, so it is Unix seconds by mistake: write Unix milliseconds: 1763760000000, or`},
		{args: []string{"list", "--from", "0"}, code: 2, stderr: `--from "0" is below 100000000000`},
		{args: []string{"timer", "audit", "a", "b", "--to", "2026-12-31T24:00:00Z"}, code: 2, stderr: "has the hour 24: write 00 to 23"},
		{args: []string{"deadletter", "purge", "--since", "1763760000"}, code: 2, stderr: "--since"},
		{args: []string{"watch", "-n", "0"}, code: 2, stderr: "--count (-n) 0: write 1 or more"},
		{args: []string{"watch", "--count=-3"}, code: 2, stderr: "--count (-n) -3: write 1 or more"},
		{args: []string{"deadletter", "purge", "-t", "a", "-n", "0"}, code: 2, stderr: "--limit (-n) 0: write 1 or more"},
		{args: []string{"cancel", "-t", "a b", "--id", "x"}, code: 2, stderr: "is not a topic name"},
		{args: []string{"get", "-t", "https://shop.example/", "--id", "x"}, code: 2, stderr: `--topic "https://shop.example/" has more than an origin: write https://shop.example`},
		{args: []string{"schedule", "-t", "a", "--id", "M\xfcller", "--delay", "1h", "--value", "x"}, code: 2, stderr: "--id is not UTF-8: write text"},
		{args: []string{"cancel", "-t", "a\xff", "--id", "x"}, code: 2, stderr: "-t is not UTF-8"},
		{args: []string{"list", "--id-prefix=M\xfc"}, code: 2, stderr: "--id-prefix is not UTF-8"},
		{args: []string{"timer", "run", "a", "M\xfc"}, code: 2, stderr: "argument 4 is not UTF-8"},
		{args: []string{"watch", "--state", "done"}, code: 2, stderr: "succeeded"},
		{args: []string{"list", "--limit", "0"}, code: 2, stderr: "1 to 1000"},
		{args: []string{"forecast", "--step", "1ms"}, code: 2, stderr: "write 1s or more"},
		{args: []string{"forecast", "--to", "later"}, code: 2, stderr: "RFC 3339"},
		{args: []string{"list", "--from", "later"}, code: 2, stderr: "RFC 3339"},
		{args: []string{"deadletter", "replay"}, code: 2, stderr: "--all"},
		{args: []string{"deadletter", "purge", "--all", "-t", "x"}, code: 2, stderr: "exclude each other"},
		{args: []string{"deadletter", "list", "--kind", "lost"}, code: 2, stderr: "write one of dead, undeliverable"},
		{args: []string{"deadletter", "replay", "--all", "--rate=-1"}, code: 2, stderr: "--rate"},
		{args: []string{"deadletter", "replay", "--all", "--set-value", "x"}, code: 2, stderr: "one letter"},
		{args: []string{"deadletter", "replay", "1", "2", "--set-value", "x"}, code: 2, stderr: "one letter"},
		{args: []string{"deadletter", "replay", "1", "--set-header", "x"}, code: 2, stderr: "NAME=VALUE"},
		{args: []string{"list", "--set", "x"}, code: 2, stderr: "KEY=VALUE"},
		{args: []string{"operations", "list", "-n", "0"}, code: 2, stderr: "1 to 1000"},
		{args: []string{"operations", "show", "x"}, code: 2, stderr: "<id>"},
		{args: []string{"operations", "stop", "1"}, code: 1, stderr: "127.0.0.1:1 (http.addr)"},
		{args: []string{"cancel", "a", "b", "--async"}, code: 2, stderr: "--id stands beside flags"},
		{args: []string{"cancel", "-t", "a", "--async", "--dry-run"}, code: 2, stderr: "--dry-run changes nothing"},
		{args: []string{"deadletter", "replay", "--all", "--async", "--rate", "5"}, code: 2, stderr: "--rate is for"},
		{args: []string{"deadletter", "replay", "1", "--async", "--set-value", "x"}, code: 2, stderr: "one letter"},
		{args: []string{"deadletter", "purge", "--all", "--async", "-n", "5"}, code: 2, stderr: "--limit (-n) is for"},

		{args: []string{"token", "new", "a"}, code: 2, stderr: "--role"},
		{args: []string{"token", "new", "a", "--role", "root"}, code: 2, stderr: "write read, operate or admin"},
		{args: []string{"token", "new", "a b", "--role", "read"}, code: 2, stderr: "without blanks"},
		{args: []string{"token", "new", "a", "--role", "read", "--topics", "["}, code: 2, stderr: "is not a pattern"},
		{args: []string{"scanner", "--http-addr", "127.0.0.1:0", "--set", "http.tokens=/nowhere.yaml"}, environ: []string{"NOTYET_MYSQL_DSN=" + sqlite, "NOTYET_REDIS_ADDRS=127.0.0.1:1"}, code: 2, stderr: "http.tokens: open /nowhere.yaml"},
		{args: []string{"scanner", "--http-addr", "127.0.0.1:0", "--set", "http.tls.enabled=true"}, environ: []string{"NOTYET_MYSQL_DSN=" + sqlite, "NOTYET_REDIS_ADDRS=127.0.0.1:1"}, code: 2, stderr: "http.tls.cert and http.tls.key"},
		{args: []string{"deadletter", "reconcile", "--since", "long ago"}, code: 2, stderr: "--since"},
		{args: []string{"deadletter", "reconcile"}, code: 2, stderr: "mysql.dsn is not set"},
		{args: []string{"deadletter", "reconcile", "--set", "redis.addrs=127.0.0.1:1", "--set", "zookeeper.servers=127.0.0.1:1"}, environ: []string{"NOTYET_MYSQL_DSN=" + sqlite}, code: 1, stderr: "no answer from Kafka"},
		{args: []string{"intake", "status"}, code: 2, stderr: "mysql.dsn is not set"},
		{args: []string{"intake", "status"}, environ: []string{"NOTYET_MYSQL_DSN=" + sqlite}, code: 1, stderr: "notyet migrate"},
		{args: []string{"intake", "skip", "in", "0"}, code: 2, stderr: "--at"},
		{args: []string{"intake", "skip", "in", "0", "--at", "5", "--to", "5"}, code: 2, stderr: "the other behind it"},
		{args: []string{"intake", "restart", "in"}, code: 2, stderr: "<partition>"},
		{args: []string{"intake", "restart", "in", "x"}, code: 2, stderr: "<partition>"},
		{args: []string{"scanner"}, code: 2, stderr: "3 problem(s)"},
		{args: []string{"dispatcher"}, code: 2, stderr: "NOTYET_ZOOKEEPER_SERVERS"},
		{args: []string{"all"}, code: 2, stderr: "4 problem(s)"},
		{args: []string{"migrate"}, code: 2, stderr: "mysql.dsn is not set"},
		{args: []string{"list"}, environ: []string{"NOTYET_HTTP_ADR=x"}, code: 2, stderr: "did you mean NOTYET_HTTP_ADDR?"},
		{args: []string{"list", "-c", file, "--set", "slots=0"}, code: 2, stderr: "2 problem(s)"},
		{args: []string{"list"}, environ: []string{"NOTYET_CONFIG=" + file}, code: 2, stderr: "wrong"},
		{args: []string{"list", "--set", "kafka.tls.enabled=true", "--set", "kafka.tls.ca=/nowhere.pem"}, code: 1, stderr: "127.0.0.1:1"},
		{args: []string{"watch", "--set", "kafka.tls.enabled=true", "--set", "kafka.tls.ca=/nowhere.pem"}, code: 2, stderr: "kafka.tls.ca"},
		{args: []string{"dev", "--kafka-addr", "0.0.0.0:1"}, code: 2, stderr: "a host that clients can reach"},

		{args: []string{"schedule", "-t", "a", "--delay", "1s", "--value", "x"}, code: 1, stderr: "no answer from Kafka at 127.0.0.1:1 (kafka.brokers)"},
		{args: []string{"cancel", "-t", "a", "--id", "x"}, code: 1, stderr: "no answer from Kafka"},
		{args: []string{"get", "-t", "a", "--id", "b"}, code: 1, stderr: "127.0.0.1:1 (http.addr)"},
		{args: []string{"get", "a", "b"}, code: 1, stderr: "127.0.0.1:1 (http.addr)"},
		{args: []string{"timer", "show", "-t", "a", "b"}, code: 1, stderr: "127.0.0.1:1 (http.addr)"},
		{args: []string{"get", "-t", "a", "--id", "b"}, environ: []string{"NOTYET_MYSQL_DSN=" + sqlite}, code: 1, stderr: "notyet migrate"},
		{args: []string{"get", "-t", "a", "--id", "b"}, environ: []string{"NOTYET_MYSQL_DSN=u:p@tcp(127.0.0.1:1)/d"}, code: 1, stderr: "notyet: reaching the database: dial tcp 127.0.0.1:1"},
		{args: []string{"scanner", "--http-addr", "127.0.0.1:0"}, environ: []string{"NOTYET_MYSQL_DSN=" + sqlite, "NOTYET_REDIS_ADDRS=127.0.0.1:1"}, code: 1, stderr: "notyet migrate"},
		{args: []string{"migrate"}, environ: []string{"NOTYET_MYSQL_DSN=" + sqlite}, code: 1, stderr: "no answer from Kafka"},
	} {
		environ := append(append([]string{}, nowhere...), c.environ...)
		if c.args != nil && (c.args[0] == "scanner" || c.args[0] == "dispatcher" || c.args[0] == "all" || c.args[0] == "migrate") && c.environ == nil {
			environ = c.environ
		}
		r := notyet(t, environ, c.stdin, c.args...)
		require.Equal(t, c.code, r.code, "%v: %s", c.args, r.stderr)
		require.Contains(t, r.stdout, c.stdout, "%v", c.args)
		require.Contains(t, r.stderr, c.stderr, "%v", c.args)
		require.NotContains(t, r.stderr, "WARN", "%v: what is wrong is told once", c.args)
		if c.code == command.ExitUsage {
			require.Empty(t, r.stdout, "%v: what is wrong is no output", c.args)
		}
	}
}

// TestErrorsAreJSONWhereItIsAskedFor: --json holds for errors too, and those of the command line.
func TestErrorsAreJSONWhereItIsAskedFor(t *testing.T) {
	nowhere := []string{"NOTYET_KAFKA_BROKERS=127.0.0.1:1", "NOTYET_HTTP_ADDR=127.0.0.1:1"}
	for _, c := range []struct {
		args     []string
		code     int
		error    string
		try      string
		problems []config.Problem
	}{
		{args: []string{"get", "-t", "a", "--json"}, code: 2, error: "--id", try: "notyet get --help"},
		{args: []string{"get", "--json", "-t", "a", "--id", ""}, code: 2, error: "--id is empty", try: "notyet get --help"},
		{args: []string{"list", "--jsn", "--json"}, code: 2, error: "--jsn", try: "notyet list --help"},
		{args: []string{"list", "--json", "--limit", "0"}, code: 2, error: "1 to 1000"},
		{args: []string{"list", "--json", "--set", "slots=0"}, code: 2, error: "1 problem(s)", problems: []config.Problem{{Key: "slots", Source: "flag", Value: "0", Problem: "is out of range", Fix: "write 1 to 4096"}}},
		{args: []string{"get", "-t", "a", "--id", "\x1bb", "--json=true"}, code: 1, error: "127.0.0.1:1 (http.addr)"},
		{args: []string{"schedule", "-t", "a", "--delay", "1s", "--value", "x", "--json"}, code: 1, error: "no answer from Kafka"},
	} {
		r := notyet(t, nowhere, "", c.args...)
		require.Equal(t, c.code, r.code, "%v: %s", c.args, r.stderr)
		require.Empty(t, r.stdout, "%v", c.args)
		require.Equal(t, 1, strings.Count(r.stderr, "\n"), "%v: %s", c.args, r.stderr)
		var got struct {
			Error    string
			Try      string
			Code     int
			Problems []config.Problem
		}
		require.NoError(t, json.Unmarshal([]byte(r.stderr), &got), r.stderr)
		require.Contains(t, got.Error, c.error, "%v", c.args)
		require.Equal(t, c.try, got.Try, "%v", c.args)
		require.Equal(t, c.code, got.Code, "%v", c.args)
		require.Equal(t, c.problems, got.Problems, "%v", c.args)
	}
	r := notyet(t, nowhere, "", "get", "-t", "a", "--id", "b", "--json=false")
	require.Contains(t, r.stderr, "notyet: ")
}

func TestEveryCommandHasHelp(t *testing.T) {
	for _, args := range [][]string{
		{"dev"}, {"scanner"}, {"dispatcher"}, {"all"}, {"migrate"}, {"config", "check"}, {"config", "print"}, {"schedule"}, {"cancel"}, {"stop"}, {"fire"}, {"get"}, {"list"}, {"forecast"}, {"watch"},
		{"deadletter", "list"}, {"deadletter", "show"}, {"deadletter", "replay"}, {"deadletter", "purge"}, {"deadletter", "export"},
		{"intake", "status"}, {"intake", "skip"}, {"intake", "restart"}, {"timer", "set"}, {"timer", "list"}, {"timer", "show"}, {"target", "pause"}, {"target", "resume"}, {"target", "limit"}, {"target", "list"},
		{"operations", "list"}, {"operations", "show"}, {"operations", "stop"},
	} {
		r := notyet(t, nil, "", append(args, "--help")...)
		require.Equal(t, command.ExitDone, r.code)
		require.Contains(t, r.stdout, "Example", "%v", args)
		require.Contains(t, r.stdout, "--config", "%v", args)
		require.Empty(t, r.stderr)
	}
}

// TestCompletion asks as a shell does: it sets COMP_LINE to what was typed.
func TestCompletion(t *testing.T) {
	for line, want := range map[string]string{
		"notyet sch":                     "schedule",
		"notyet deadletter re":           "reconcile replay",
		"notyet operations ":             "get list show stop",
		"notyet timer backfill --as":     "--async",
		"notyet get --js":                "--json",
		"notyet list -t a --htt":         "--http-addr --http-token",
		"notyet config check --service ": "all dispatcher scanner",
		"notyet completion ":             "bash fish zsh",
	} {
		t.Setenv("COMP_LINE", line)
		r := notyet(t, nil, "")
		require.Zero(t, r.code, line)
		require.Empty(t, r.stderr, line)
		require.ElementsMatch(t, strings.Fields(want), strings.Fields(r.stdout), line)
	}
}

func TestCompletionCode(t *testing.T) {
	for shell, want := range map[string]string{"bash": "complete -o default -o bashdefault -C ", "zsh": "#compdef notyet", "fish": "complete -f -c notyet"} {
		r := notyet(t, nil, "", "completion", "--code", shell)
		require.Zero(t, r.code, r.stderr)
		require.Contains(t, r.stdout, want)
	}
	r := notyet(t, nil, "", "completion", "bash")
	require.Contains(t, r.stdout, "source <(notyet completion -c bash)")
	require.Equal(t, 2, notyet(t, nil, "", "completion", "csh").code)
}

// notyet bench is notyet-bench with the same arguments, environment and exit code.
func TestBenchRunsTheProgramThatMeasures(t *testing.T) {
	dir := t.TempDir()
	require.NoError(t, os.WriteFile(filepath.Join(dir, measurer), []byte("#!/bin/sh\necho \"$0 $*, $HOME\"\nexit 7\n"), 0o700)) //nolint:gosec // a program
	t.Setenv("PATH", dir+":"+os.Getenv("PATH"))
	for want, args := range map[string][]string{
		"burst 5 --lead 1s --json, /\n": {"bench", "burst", "5", "--lead", "1s", "--json"},
		"--help, /\n":                   {"bench"},
	} {
		var out program.Output
		cmd := start(t, &out, &out, args...)
		require.Error(t, cmd.Wait())
		require.Equal(t, 7, cmd.ProcessState.ExitCode(), "%s", &out)
		require.Contains(t, out.String(), want)
	}
}
