package main

import (
	"context"
	"crypto/rand"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/notyet/notyet/api"
	"github.com/notyet/notyet/deadletter"
	"github.com/notyet/notyet/internal/command"
	"github.com/notyet/notyet/schemas"
	"github.com/notyet/notyet/test/program"
	"github.com/notyet/notyet/test/recordtest"
)

func client(t *testing.T, broker string, opts ...kgo.Opt) *kgo.Client {
	t.Helper()
	c, err := kgo.NewClient(append([]kgo.Opt{kgo.SeedBrokers(broker), kgo.FetchMaxWait(100 * time.Millisecond)}, opts...)...)
	require.NoError(t, err)
	t.Cleanup(c.Close)
	return c
}

// first waits for a topic's first record.
func first(t *testing.T, broker, topic string) *kgo.Record {
	t.Helper()
	return records(t, broker, topic, 1)[0]
}

// records waits for a topic's first n records.
func records(t *testing.T, broker, topic string, n int) (out []*kgo.Record) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
	defer cancel()
	c := client(t, broker, kgo.ConsumeTopics(topic), kgo.ConsumeStartOffset(kgo.NewOffset().AtStart()))
	for {
		fetches := c.PollFetches(ctx)
		require.NoError(t, ctx.Err(), "no record came on %s", topic)
		if out = append(out, fetches.Records()...); len(out) >= n {
			return out[:n]
		}
	}
}

func TestDevDeliversWhatAnyKafkaClientPublishes(t *testing.T) {
	d := startDev(t)
	began := time.Now()
	intake := client(t, d.kafka)
	require.NoError(t, intake.ProduceSync(t.Context(), &kgo.Record{
		Topic: "notyet.intake", Key: []byte("k"), Value: []byte("v"), Headers: []kgo.RecordHeader{
			{Key: "own", Value: []byte{0xff}}, {Key: "notyet-topic", Value: []byte("orders")}, {Key: "notyet-delay", Value: []byte("700ms")}, {Key: "own", Value: nil},
		},
	}).FirstErr())
	r := first(t, d.kafka, "orders")
	due, err := strconv.ParseInt(recordtest.Header(r, "notyet-due"), 10, 64)
	require.NoError(t, err)
	require.GreaterOrEqual(t, due, began.UnixMilli()+700)
	require.GreaterOrEqual(t, r.Timestamp.UnixMilli(), due, "never before due")
	require.GreaterOrEqual(t, time.Now().UnixMilli(), due)
	require.Equal(t, []byte("k"), r.Key)
	require.Equal(t, []byte("v"), r.Value)
	require.Equal(t, []kgo.RecordHeader{{Key: "own", Value: []byte{0xff}}, {Key: "own"}}, r.Headers[:2])
	require.Equal(t, "1", recordtest.Header(r, "notyet-attempt"))
}

func TestDevServesHealthMetricsAndDescription(t *testing.T) {
	d := startDev(t)
	for _, path := range []string{"/healthz", "/readyz", "/metrics", "/openapi.json", "/api/v1/tasks"} {
		resp, err := http.Get("http://" + d.http + path) //nolint:noctx // a test's
		require.NoError(t, err)
		require.NoError(t, resp.Body.Close())
		require.Equal(t, 200, resp.StatusCode, path)
	}
	require.Contains(t, d.out.String(), "not for production")
	require.Contains(t, d.out.String(), "Used from the environment: NOTYET_WINDOW\n")
	require.Contains(t, d.out.String(), "Ignored, since dev brings its own: NOTYET_KAFKA_BROKERS, NOTYET_MYSQL_DSN, NOTYET_REDIS_ADDRS, NOTYET_ZOOKEEPER_SERVERS, NOTYET_SLOTS\n")
	require.Contains(t, d.out.String(), "  bin/notyet schedule --kafka-brokers "+d.kafka)
	require.Equal(t, command.ExitDone, d.stop())
}

func TestScheduleGetCancelFire(t *testing.T) {
	d := startDev(t)

	r := d.cmd(t, "schedule", "-t", "orders", "--id", "a/1", "--delay", "1h", "--key", "k", "--value", "hello", "-H", "x=1=2", "-H", "x=", "--json")
	require.Equal(t, command.ExitDone, r.code, r.stderr)
	var p api.Published
	require.NoError(t, json.Unmarshal([]byte(r.stdout), &p))
	require.Equal(t, "a/1", p.ID)
	require.Equal(t, "notyet.intake", p.Intake)
	require.InDelta(t, time.Now().Add(time.Hour).UnixMilli(), p.Due, 60_000)

	var task api.Task
	require.Eventually(t, func() bool { // acknowledged is not yet stored
		r = d.cmd(t, "get", "-t", "orders", "--id", "a/1", "--json")
		return r.code == command.ExitDone
	}, time.Minute, 10*time.Millisecond)
	require.NoError(t, json.Unmarshal([]byte(r.stdout), &task))
	require.Equal(t, "pending", task.State)
	require.Equal(t, p.Due, task.Due)
	require.Equal(t, "k", *task.Key)
	require.Equal(t, "hello", *task.Value)
	one, none := "1=2", ""
	require.Equal(t, []deadletter.Header{{Key: "x", Value: &one}, {Key: "x", Value: &none}}, task.Headers)
	r = d.cmd(t, "get", "orders", "a/1")
	require.Contains(t, r.stdout, "header       x=1=2\n")
	require.Contains(t, d.cmd(t, "list", "-t", "orders").stdout, "a/1")

	r = d.cmd(t, "cancel", "-t", "orders", "--id", "a/1", "--key", "k")
	require.Equal(t, command.ExitDone, r.code, r.stderr)
	require.Contains(t, r.stdout, "cancelled")
	r = d.cmd(t, "cancel", "-t", "orders", "--id", "unknown", "--json")
	require.Equal(t, command.ExitFailed, r.code)
	require.Contains(t, r.stdout, `"state":"not_found"`)
	r = d.cmd(t, "fire", "-t", "orders", "--id", "a/1", "--key", "k")
	require.Equal(t, command.ExitFailed, r.code)

	r = notyet(t, d.environ, "\x00\xff", "schedule", "-t", "orders", "--id", "b", "--delay", "P400D")
	require.Equal(t, command.ExitDone, r.code, r.stderr)
	r = d.cmd(t, "fire", "-t", "orders", "--id", "b", "--no-wait")
	require.Equal(t, command.ExitDone, r.code, r.stderr)
	require.Contains(t, r.stdout, "fire of b")
	record := first(t, d.kafka, "orders")
	require.Equal(t, []byte{0, 0xff}, record.Value, "standard input is the value, byte for byte")
	require.Nil(t, record.Key)

	r = d.cmd(t, "watch", "--from-start", "-n", "1", "--state", "cancelled", "--json")
	require.Equal(t, command.ExitDone, r.code, r.stderr)
	require.Contains(t, r.stdout, `"id":"a/1"`)
	r = d.cmd(t, "get", "-t", "orders", "--id", "nothing")
	require.Equal(t, command.ExitFailed, r.code)
	require.Contains(t, r.stderr, "no task of this topic and id is known; a rejected request is in `notyet deadletter list --kind rejected`")
}

func TestScheduleWaitsForTheEnd(t *testing.T) {
	d := startDev(t)
	r := d.cmd(t, "schedule", "-t", "orders", "--delay", "100ms", "--value", "x", "--wait")
	require.Equal(t, command.ExitDone, r.code, r.stderr)
	require.Contains(t, r.stdout, "succeeded")
	r = d.cmd(t, "schedule", "-t", "orders", "--id", "v", "--version", "5", "--delay", "1h", "--null-value")
	require.Equal(t, command.ExitDone, r.code, r.stderr)
	r = d.cmd(t, "schedule", "-t", "orders", "--id", "v", "--version", "4", "--delay", "1h", "--null-value", "--wait")
	require.Equal(t, command.ExitFailed, r.code)
	require.Contains(t, r.stdout, "stale")
	r = d.cmd(t, "cancel", "-t", "orders", "--id-prefix", "v", "--yes")
	require.Equal(t, command.ExitDone, r.code, r.stderr)
	r = d.cmd(t, "schedule", "-t", "orders", "--id", "v", "--version", "6", "--delay", "2s", "--null-value", "--wait")
	require.Equal(t, command.ExitDone, r.code, "the end of the task before is not its own: %s", r.stdout)
	require.Contains(t, r.stdout, "succeeded")
}

func TestScheduleGivesUpWaiting(t *testing.T) {
	d := startDev(t)
	r := d.cmd(t, "schedule", "-t", "orders", "--id", "a", "--delay", "1h", "--value", "x", "--wait", "--timeout", "10s")
	require.Equal(t, command.ExitFailed, r.code)
	require.Contains(t, r.stdout, "scheduled a for orders")
	require.Contains(t, r.stderr, "(--timeout): a is in notyet.intake/")
	require.Regexp(t, "last heard: .* scheduled  orders a due .*\\. It goes on: `notyet get`", r.stderr)

	require.Eventually(t, func() bool {
		r = d.cmd(t, "get", "-t", "orders", "--id", "a", "--json")
		return r.code == command.ExitDone
	}, time.Minute, 10*time.Millisecond)
	var task api.Task
	require.NoError(t, json.Unmarshal([]byte(r.stdout), &task))
	r = d.cmd(t, "schedule", "-t", "orders", "--id", "a", "--delay", "2h", "--value", "x", "--if-exists", "keep", "--events", "all", "--wait", "--timeout", "10s")
	require.Equal(t, command.ExitFailed, r.code)
	require.Contains(t, r.stdout, "unless one of this id is pending and keeps its own time")
	require.Contains(t, r.stderr, "due "+stamp(task.Due)+"; last heard: ", "that of the task that was kept")
	require.Contains(t, r.stderr, " kept       orders a due "+stamp(task.Due))
}

func TestHowLongScheduleWaits(t *testing.T) {
	began := time.UnixMilli(1_000_000)
	c := &scheduleCmd{}
	require.Equal(t, int64(1_090_000), c.until(began, 1_060_000).UnixMilli(), "30 s beyond what is known")
	c.Timeout = 5 * time.Second
	require.Equal(t, int64(1_005_000), c.until(began, 1_060_000).UnixMilli())
}

// unreported makes a dead letter: a report is asked for and never comes.
func (d *dev) unreported(t *testing.T, id string) {
	t.Helper()
	r := d.cmd(t, "schedule", "-t", "orders", "--id", id, "--delay", "0s", "--ack", "report", "--ack-timeout", "100ms", "--max-attempts", "1", "--value", id, "--wait")
	require.Equal(t, command.ExitFailed, r.code, r.stderr)
	require.Contains(t, r.stdout, "dead")
}

// A task that waits for a report can no longer be cancelled, and can be stopped.
func TestStopATaskThatWaits(t *testing.T) {
	d := startDev(t)
	require.Equal(t, command.ExitDone, d.cmd(t, "schedule", "-t", "orders", "--id", "a", "--delay", "0s", "--ack", "report", "--key", "k", "--value", "x").code)
	require.Equal(t, "x", string(first(t, d.kafka, "orders").Value))
	require.Eventually(t, func() bool {
		return strings.Contains(d.cmd(t, "get", "-t", "orders", "--id", "a").stdout, "waiting_report")
	}, time.Minute, 10*time.Millisecond)
	r := d.cmd(t, "cancel", "-t", "orders", "--id", "a", "--key", "k")
	require.Equal(t, command.ExitFailed, r.code)
	require.Contains(t, r.stdout, "the task waits for a report on attempt 1 until ")
	require.Contains(t, r.stdout, "; send notyet-op stop to end its attempts")
	require.Equal(t, command.ExitDone, d.cmd(t, "schedule", "-t", "orders", "--id", "w", "--delay", "0s", "--ack", "report", "--key", "w", "--value", "x").code)
	require.Eventually(t, func() bool {
		return strings.Contains(d.cmd(t, "get", "-t", "orders", "--id", "w").stdout, "waiting_report")
	}, time.Minute, 10*time.Millisecond)
	require.Equal(t, command.ExitDone, d.cmd(t, "schedule", "-t", "orders", "--id", "w", "--delay", "1h", "--key", "w", "--value", "newer").code)
	r = d.cmd(t, "cancel", "-t", "orders", "--id", "w", "--key", "w", "--timeout", "10s")
	require.Equal(t, command.ExitFailed, r.code)
	require.Contains(t, r.stderr, "no answer within 10s")
	require.Contains(t, r.stderr, "it waits for the request before it")
	resp, err := http.Post("http://"+d.http+"/api/v1/tasks/orders/w/fire?wait=10s&key=w", "application/json", nil) //nolint:noctx // a test's
	require.NoError(t, err)
	var sent api.Published
	require.NoError(t, json.NewDecoder(resp.Body).Decode(&sent))
	require.NoError(t, resp.Body.Close())
	require.Equal(t, http.StatusAccepted, resp.StatusCode)
	require.Equal(t, "the request before it", sent.Awaits)
	require.Regexp(t, `waiting +schedule notyet.intake/\d+/\d+, for the end of the task's attempts: the task waits for a report on attempt 1 until `, d.cmd(t, "get", "-t", "orders", "--id", "w").stdout)

	r = d.cmd(t, "stop", "-t", "orders", "--id", "a", "--key", "k")
	require.Equal(t, command.ExitDone, r.code, r.stderr)
	require.Contains(t, r.stdout, " stopped    orders a attempt 1")
	require.Contains(t, d.cmd(t, "get", "-t", "orders", "--id", "a").stdout, "state        stopped")
	require.Contains(t, d.cmd(t, "list", "--state", "stopped").stdout, "orders")
	require.Contains(t, d.cmd(t, "stop", "-t", "orders", "--id", "unknown").stdout, "not_found")
}

func TestDeadLetters(t *testing.T) {
	d := startDev(t)
	d.unreported(t, "a")
	d.unreported(t, "b")
	r := d.cmd(t, "deadletter", "list", "--json")
	var found []deadletter.Letter
	require.NoError(t, json.Unmarshal([]byte(r.stdout), &found))
	require.Len(t, found, 2)
	require.Nil(t, found[0].Content)
	id := fmt.Sprint(found[0].ID)
	require.Contains(t, d.cmd(t, "deadletter", "list", "--task-id", "b").stdout, "attempts exhausted")
	require.Contains(t, d.cmd(t, "deadletter", "show", id).stdout, "value        a\n")
	require.Equal(t, 2, strings.Count(d.cmd(t, "deadletter", "export").stdout, "\n"))
	file := filepath.Join(t.TempDir(), "letters")
	require.Equal(t, command.ExitDone, d.cmd(t, "deadletter", "export", "--task-id", "a", "-o", file).code)
	data, err := os.ReadFile(file)
	require.NoError(t, err)
	require.Contains(t, string(data), `"value":"a"`)

	require.Contains(t, d.cmd(t, "deadletter", "replay", "--all", "--dry-run").stdout, "would replay 2, skipped 0")
	r = d.cmd(t, "deadletter", "replay", id, "--json")
	require.Equal(t, command.ExitDone, r.code, r.stderr)
	var said replayed
	require.NoError(t, json.Unmarshal([]byte(r.stdout), &said))
	require.Equal(t, replayed{Replayed: 1, Reasons: map[string]int64{}}, replayed{Replayed: said.Replayed, Skipped: said.Skipped, Reasons: said.Reasons})
	again := "/api/v1/deadletters/count?died_again_since=1700000000000&task_id=" + found[0].TaskID
	require.Eventually(t, func() bool { return strings.Contains(d.page(t, again), `"count":1`) }, time.Minute, 20*time.Millisecond)
	r = d.cmd(t, "deadletter", "replay", id, "4242")
	require.Equal(t, command.ExitFailed, r.code)
	require.Contains(t, r.stdout, "it has been replayed already")
	require.Contains(t, r.stderr, "1 of the ids: there is no dead letter with this id")
	require.JSONEq(t, `{"error":"1 of the ids: there is no dead letter with this id","code":1}`, d.cmd(t, "deadletter", "replay", "4242", "--json").stderr)

	require.JSONEq(t, `{"purged":1,"dry_run":true}`, d.cmd(t, "deadletter", "purge", "--task-id", "b", "--dry-run", "--json").stdout)
	require.JSONEq(t, `{"purged":1}`, d.cmd(t, "deadletter", "purge", "--task-id", "b", "--json").stdout)
	require.Contains(t, d.cmd(t, "deadletter", "list", "--task-id", "b").stdout, "no dead letters")
	require.Equal(t, command.ExitFailed, d.cmd(t, "deadletter", "show", "4242").code)

	d.unreported(t, "c")
	require.NoError(t, json.Unmarshal([]byte(d.cmd(t, "deadletter", "list", "--task-id", "c", "--json").stdout), &found))
	id = fmt.Sprint(found[0].ID)
	require.Equal(t, command.ExitUsage, d.cmd(t, "deadletter", "replay", id, "--set-header", "notyet-at=1").code)
	require.Equal(t, command.ExitFailed, d.cmd(t, "deadletter", "replay", "4242", "--set-key", "k").code)
	r = d.cmd(t, "deadletter", "replay", id, "--set-value", "better", "--set-key", "", "--set-header", "a=1", "--set-topic", "payments")
	require.Equal(t, command.ExitDone, r.code, r.stderr)
	require.Contains(t, r.stdout, "replayed 1, skipped 0")
	r = d.cmd(t, "get", "-t", "payments", "--id", "c", "--json")
	var edited api.Task
	require.NoError(t, json.Unmarshal([]byte(r.stdout), &edited))
	require.Equal(t, []string{"better", ""}, []string{*edited.Value, *edited.Key})
	require.Equal(t, 1, edited.Replay)
	require.Equal(t, []deadletter.Header{{Key: "a", Value: new("1")}}, edited.Headers)
}

func TestTheDatabaseAndTheServiceAnswerTheSame(t *testing.T) {
	data := t.TempDir()
	d := startDev(t, "--data", data)
	d.unreported(t, "a")
	r := d.cmd(t, "schedule", "-t", "orders", "--id", "p", "--delay", "P400D", "--value", "x", "--events", "all")
	require.Equal(t, command.ExitDone, r.code, r.stderr)
	require.Equal(t, command.ExitDone, d.cmd(t, "watch", "--from-start", "--id", "p", "-n", "1").code)

	direct := append(d.environ, "NOTYET_MYSQL_DSN=sqlite:"+filepath.Join(data, "notyet.db"))
	for _, args := range [][]string{
		{"get", "-t", "orders", "--id", "p", "--json"}, {"list", "--json", "--content"}, {"list", "--ended", "--json"},
		{"deadletter", "list", "--json"}, {"deadletter", "export"}, {"deadletter", "show", "1", "--json"}, {"deadletter", "replay", "--all", "--dry-run", "--json"},
	} {
		asked, read := d.cmd(t, args...), notyet(t, direct, "", args...)
		require.Equal(t, command.ExitDone, asked.code, asked.stderr)
		require.Equal(t, asked, read, "%v", args)
	}
}

// process is the program in a process of its own.
func process(t *testing.T, args ...string) (*exec.Cmd, *program.Output) {
	t.Helper()
	out := &program.Output{}
	return start(t, out, out, args...), out
}

func start(t *testing.T, stdout, stderr io.Writer, args ...string) *exec.Cmd {
	t.Helper()
	self, err := os.Executable()
	require.NoError(t, err)
	cmd := exec.Command(self, args...) //nolint:noctx // ended by a signal
	cmd.Env = []string{"HOME=/", "PATH=" + os.Getenv("PATH"), "TMPDIR=" + t.TempDir(), asProgram + "=1"}
	cmd.Stdout, cmd.Stderr = stdout, stderr
	require.NoError(t, cmd.Start())
	t.Cleanup(func() { _ = cmd.Process.Kill(); _ = cmd.Wait() })
	return cmd
}

// Deliveries do not end with the program that reads the access log.
func TestAServiceOutlivesTheReaderOfItsAccessLog(t *testing.T) {
	read, written, err := os.Pipe()
	require.NoError(t, err)
	var out, errs program.Output
	cmd := start(t, written, &errs, "dev", "--kafka-addr", "127.0.0.1:0", "--http-addr", "127.0.0.1:0", "--set", "http.access-log=true")
	require.NoError(t, written.Close())
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		_, _ = io.Copy(&out, read)
	}()
	d := ready(t, &out)
	require.NoError(t, read.Close())
	<-ended
	for range 3 {
		require.Equal(t, command.ExitDone, d.cmd(t, "list").code, &errs)
	}
	require.NoError(t, cmd.Process.Signal(syscall.SIGTERM))
	require.NoError(t, cmd.Wait(), "%s", &errs)
}

func ready(t *testing.T, out *program.Output) *dev {
	t.Helper()
	d := &dev{out: out}
	require.Eventually(t, d.greeted, time.Minute, time.Millisecond, "%s", out)
	return d
}

func TestDevKeepsEverythingThroughKill(t *testing.T) {
	data := t.TempDir()
	args := []string{"dev", "--kafka-addr", "127.0.0.1:0", "--http-addr", "127.0.0.1:0", "--data", data}
	cmd, out := process(t, args...)
	d := ready(t, out)
	require.Equal(t, command.ExitDone, d.cmd(t, "schedule", "-t", "orders", "--id", "soon", "--delay", "1500ms", "--value", "x").code)
	require.Equal(t, command.ExitDone, d.cmd(t, "schedule", "-t", "orders", "--id", "later", "--delay", "1h", "--value", "x").code)

	other, said := process(t, args...)
	require.ErrorContains(t, other.Wait(), "exit status 1", "one process at a time")
	require.Contains(t, said.String(), "another notyet dev uses it")

	require.NoError(t, cmd.Process.Kill())
	_ = cmd.Wait()
	cmd, out = process(t, args...)
	d = ready(t, out)
	r := first(t, d.kafka, "orders")
	require.Equal(t, "soon", recordtest.Header(r, "notyet-id"))
	require.Contains(t, d.cmd(t, "list").stdout, "later")

	require.NoError(t, cmd.Process.Signal(syscall.SIGTERM))
	require.NoError(t, cmd.Wait(), "asked to stop, it is done: exit code 0; %s", out)
}

func TestDevLeavesNothingBehind(t *testing.T) {
	cmd, out := process(t, "dev", "--kafka-addr", "127.0.0.1:0", "--http-addr", "127.0.0.1:0")
	ready(t, out)
	var temporary string
	for _, e := range cmd.Env {
		if dir, ok := strings.CutPrefix(e, "TMPDIR="); ok {
			temporary = dir
		}
	}
	entries, err := os.ReadDir(temporary)
	require.NoError(t, err)
	require.Len(t, entries, 1)
	require.NoError(t, cmd.Process.Signal(os.Interrupt))
	require.NoError(t, cmd.Wait(), "%s", out)
	entries, err = os.ReadDir(temporary)
	require.NoError(t, err)
	require.Empty(t, entries)
}

func TestPortsInUse(t *testing.T) {
	d := startDev(t)
	r := notyet(t, nil, "", "dev", "--kafka-addr", d.kafka, "--http-addr", "127.0.0.1:0")
	require.Equal(t, command.ExitFailed, r.code)
	require.Contains(t, r.stderr, "--kafka-addr")
	require.Contains(t, r.stderr, "in use")
	r = notyet(t, nil, "", "dev", "--kafka-addr", "127.0.0.1:0", "--http-addr", d.http)
	require.Equal(t, command.ExitUsage, r.code)
	require.Contains(t, r.stderr, "http.addr (NOTYET_HTTP_ADDR)")
}

func TestMigrate(t *testing.T) {
	d := startDev(t)
	environ := append(d.environ, "NOTYET_MYSQL_DSN=sqlite:"+t.TempDir()+"/notyet.db", "NOTYET_INTAKE_TOPICS=in.a,in.b", "NOTYET_SLOTS=5")
	r := notyet(t, environ, "", "migrate", "--json")
	require.Equal(t, command.ExitDone, r.code, r.stderr)
	require.JSONEq(t, `{"slots":5,"topics_created":["in.a","in.b"],"topics_kept":["notyet.reports","notyet.cancels","notyet.results"]}`, r.stdout)
	r = notyet(t, environ, "", "migrate", "--set", "slots=9")
	require.Equal(t, command.ExitUsage, r.code)
	require.Contains(t, r.stderr, "slots is 9 (flag), but the database has 5, and migrate does not change their number: see `notyet slots set`, or write 5")
	r = notyet(t, environ, "", "migrate")
	require.Equal(t, command.ExitDone, r.code, r.stderr)
	require.Contains(t, r.stdout, "5 slots")
	require.Contains(t, r.stdout, "topic in.a: exists, left as it is")

	// The topics take the largest request that their intake takes, and not much more.
	c := client(t, d.kafka, kgo.ProducerBatchMaxBytes(16<<20))
	large := func(value int) error {
		noise := make([]byte, value+schemas.MaxKeyBytes+schemas.MaxHeaderBytes)
		_, _ = rand.Read(noise) // cannot be compressed
		r := &kgo.Record{Topic: "in.a", Value: noise[:value], Key: noise[value:][:schemas.MaxKeyBytes]}
		each := schemas.MaxHeaderBytes / schemas.MaxHeaders
		for headers := range slices.Chunk(noise[value+schemas.MaxKeyBytes:], each) {
			r.Headers = append(r.Headers, kgo.RecordHeader{Key: string(headers[:each/2]), Value: headers[each/2:]})
		}
		return c.ProduceSync(t.Context(), r).FirstErr()
	}
	require.NoError(t, large(schemas.DefaultMaxValueBytes))
	require.ErrorIs(t, large(schemas.DefaultMaxValueBytes+16<<10), kerr.MessageTooLarge)
}

// The directory holds other people's messages. What an earlier version left readable is closed too.
func TestDevsFilesAreItsUsersAlone(t *testing.T) {
	data := t.TempDir()
	require.NoError(t, os.MkdirAll(filepath.Join(data, "kafka"), 0o755))
	require.NoError(t, os.WriteFile(filepath.Join(data, "kafka", "old"), nil, 0o644))
	before := map[string]bool{data: true} // the user's own
	d := startDev(t, "--data", data)
	require.Equal(t, command.ExitDone, d.cmd(t, "schedule", "-t", "orders", "--id", "p", "--delay", "10ms", "--value", "x", "--wait").code)
	files := 0
	require.NoError(t, filepath.WalkDir(data, func(path string, entry os.DirEntry, err error) error {
		if err != nil || before[path] {
			return nil //nolint:nilerr // a file may go while the services run
		}
		if info, err := entry.Info(); err == nil {
			require.Zero(t, info.Mode().Perm()&0o077, "%s is %v", path, info.Mode())
			files++
		}
		return nil
	}))
	require.Greater(t, files, 5)
	require.Equal(t, command.ExitDone, d.stop())
}
