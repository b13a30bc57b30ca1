package main

import (
	"context"
	"os"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/notyet/notyet/cmd/internal/command"
	"github.com/notyet/notyet/test/program"
	"github.com/stretchr/testify/require"
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
