package main

import (
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/notyet/notyet/cmd/internal/command"
	"github.com/notyet/notyet/test/program"
)

// A service reads its configuration again at SIGHUP: it takes over what may change, names what needs a restart, and refuses what is wrong as a whole.
func TestASettingChangesAtSIGHUP(t *testing.T) {
	file := filepath.Join(t.TempDir(), "notyet.yaml")
	write := func(text string) { require.NoError(t, os.WriteFile(file, []byte(text), 0o600)) }
	quota := func(perSecond string) string {
		return "intake: {topics: [{topic: notyet.intake, requests-per-second: " + perSecond + "}]}\n"
	}
	write("log: {level: warn}\n" + quota("1"))
	m := newTeam(t, filepath.Join(t.TempDir(), "notyet.db"), kafkaCluster(t, "one"), ensemble(t)).without("NOTYET_LOG_LEVEL")
	r := notyet(t, m.environ, "", "migrate")
	require.Equal(t, command.ExitDone, r.code, r.stderr)
	var out program.Output
	self, err := os.Executable()
	require.NoError(t, err)
	addr := program.FreeAddr(t)
	cmd := exec.Command(self, "scanner", "--config", file, "--http-addr", addr) //nolint:noctx // ended by a signal
	cmd.Env = append(m.environ, "HOME=/", asProgram+"=1")
	cmd.Stdout, cmd.Stderr = &out, &out
	require.NoError(t, cmd.Start())
	t.Cleanup(func() { _ = cmd.Process.Kill(); _ = cmd.Wait() })
	metric := func(name string) string {
		resp, err := http.Get("http://" + addr + "/metrics") //nolint:noctx // a test's
		if err != nil {
			return ""
		}
		defer resp.Body.Close()
		text, err := io.ReadAll(resp.Body)
		require.NoError(t, err)
		found := regexp.MustCompile(`(?m)^` + regexp.QuoteMeta(name) + ` (\S+)$`).FindStringSubmatch(string(text))
		if found == nil {
			return ""
		}
		return found[1]
	}
	hangup := func(name string, want func() bool) {
		require.NoError(t, cmd.Process.Signal(syscall.SIGHUP))
		require.Eventually(t, want, time.Minute, 5*time.Millisecond, "%s: %s", name, &out)
	}
	says := func(words ...string) func() bool {
		before := len(out.String())
		return func() bool {
			for _, word := range words {
				if !strings.Contains(out.String()[before:], word) {
					return false
				}
			}
			return true
		}
	}
	require.Eventually(t, func() bool { return metric("notyet_config_refused") == "0" }, time.Minute, 5*time.Millisecond, "%s", &out)
	first := metric("notyet_config_read_timestamp_seconds")

	write("log: {level: info}\nwindow: 1h\n" + quota("1"))
	hangup("another level", says(`"taken_over":["log.level"]`, `need a restart`, `"settings":["window"]`))
	is := func(name, value string) { // the page of metrics is of a moment before
		require.Eventually(t, func() bool { return metric(name) == value }, time.Minute, 50*time.Millisecond, name)
	}
	require.Eventually(t, func() bool { return metric("notyet_config_read_timestamp_seconds") != first }, time.Minute, 50*time.Millisecond)

	write("log: {level: debug}\nwindow: 1h\nslots: many\n")
	hangup("a mistake", says("nothing of it is taken over", `slots (`+file+`) \"many\" is not valid`))
	is("notyet_config_refused", "1")
	require.NotContains(t, out.String(), `"level":"debug"`)

	broker := strings.TrimPrefix(m.environ[1], "NOTYET_KAFKA_BROKERS=")
	producer := client(t, broker)
	send := func(delay string) {
		require.NoError(t, producer.ProduceSync(t.Context(), &kgo.Record{Topic: "notyet.intake", Headers: []kgo.RecordHeader{{Key: "notyet-topic", Value: []byte("orders")}, {Key: "notyet-delay", Value: []byte(delay)}}}).FirstErr())
	}
	for range 200 {
		send("1h")
	}
	const waits = `notyet_scanner_quota_wait_seconds{quota="requests-per-second",topic="notyet.intake"}`
	require.Eventually(t, func() bool { return metric(waits) != "" && metric(waits) != "0" }, time.Minute, 50*time.Millisecond)
	write("log: {level: info}\nwindow: 1h\n" + quota("100000"))
	hangup("another quota", says(`"taken_over":["intake.topics[notyet.intake].requests-per-second"]`, `"settings":["window"]`))
	is(waits, "0")

	post := func() int {
		resp, err := http.Post("http://"+addr+"/api/v1/tasks", "application/json", strings.NewReader(`{"topic":"orders","delay":"2h"}`)) //nolint:noctx // a test's
		require.NoError(t, err)
		require.NoError(t, resp.Body.Close())
		return resp.StatusCode
	}
	const rejected = `notyet_scanner_dead_total{kind="rejected"}`
	write("log: {level: info}\nwindow: 1h\nintake: {max-delay: 90m, topics: [{topic: notyet.intake, requests-per-second: 100000}]}\n")
	hangup("a nearer horizon", says(`"taken_over":["intake.topics[notyet.intake].max-delay","intake.max-delay"]`))
	require.Equal(t, http.StatusUnprocessableEntity, post(), "the API's")
	require.Contains(t, []string{"", "0"}, metric(rejected))
	send("2h")
	is(rejected, "1")
	write("log: {level: info}\nwindow: 1h\n" + quota("100000"))
	hangup("the horizon of before", says(`"taken_over":["intake.topics[notyet.intake].max-delay","intake.max-delay"]`))
	require.Equal(t, http.StatusAccepted, post())

	write("log: {level: debug}\n")
	hangup("its correction", says(`"level":"debug"`, `"taken_over":["log.level"]`, `"settings":["intake.topics[notyet.intake].requests-per-second"]`))
	is("notyet_config_refused", "0")
	require.NoError(t, cmd.Process.Signal(syscall.SIGTERM))
	require.NoError(t, cmd.Wait(), "%s", &out)
}
