package main

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/alicebob/miniredis/v2"
	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/notyet/notyet/internal/command"
	"github.com/notyet/notyet/internal/kafka"
	"github.com/notyet/notyet/test/program"
	"github.com/notyet/notyet/test/zkfake"
)

// team is an installation whose operator has left every name as it is.
type team struct{ environ []string }

func newTeam(t *testing.T, database, broker, zookeeper string) team {
	dir := t.TempDir()
	return team{[]string{
		"NOTYET_MYSQL_DSN=sqlite:" + database, "NOTYET_KAFKA_BROKERS=" + broker, "NOTYET_ZOOKEEPER_SERVERS=" + zookeeper, "NOTYET_REDIS_ADDRS=127.0.0.1:1",
		"NOTYET_HTTP_ADDR=127.0.0.1:0", "NOTYET_SENDLOG_DIR=" + filepath.Join(dir, "sendlog"), "NOTYET_DISPATCHER_DRAIN_TIMEOUT=1s", "NOTYET_LOG_LEVEL=info",
	}}
}

func kafkaCluster(t *testing.T, id string) string {
	c, err := kfake.NewCluster(kfake.NumBrokers(1), kfake.ClusterID(id), kfake.BrokerConfigs(map[string]string{"group.initial.rebalance.delay.ms": "0"}))
	require.NoError(t, err)
	t.Cleanup(c.Close)
	return c.ListenAddrs()[0]
}

func ensemble(t *testing.T) string {
	z, err := zkfake.Start(zkfake.Config{})
	require.NoError(t, err)
	t.Cleanup(z.Close)
	return z.Addr()
}

// serve runs a service until the test ends, and waits until it says a word.
func (m team) serve(t *testing.T, service, says string, args ...string) *program.Output {
	t.Helper()
	out := &program.Output{}
	ctx, stop := context.WithCancel(context.Background())
	ended := make(chan int, 1)
	a := &app{&command.App{Ctx: ctx, Stdin: strings.NewReader(""), Stdout: out, Stderr: out, Environ: append([]string{"HOME=/"}, m.environ...), Name: "notyet", Program: "notyet"}}
	go func() { ended <- a.run(append([]string{service}, args...)) }()
	t.Cleanup(func() { stop(); require.Equal(t, command.ExitDone, <-ended, out) })
	require.Eventually(t, func() bool { return strings.Contains(out.String(), says) }, time.Minute, 5*time.Millisecond, "%s did not say %q", service, says)
	return out
}

// refused runs a service that must end by itself with such an error.
func (m team) refused(t *testing.T, service string, says ...string) {
	t.Helper()
	r := notyet(t, m.environ, "", service)
	require.Equal(t, command.ExitFailed, r.code, "%s: %s", service, r.stderr)
	for _, word := range says {
		require.Contains(t, r.stderr, word, service)
	}
}

// A service that is started with the address of another cluster would take that one's requests, and deliver to its topics.
func TestADatabaseWithTwoKafkas(t *testing.T) {
	database, zookeeper := filepath.Join(t.TempDir(), "notyet.db"), ensemble(t)
	ours, others := newTeam(t, database, kafkaCluster(t, "ours"), zookeeper), newTeam(t, database, kafkaCluster(t, "others"), zookeeper)
	r := notyet(t, ours.environ, "", "migrate")
	require.Equal(t, command.ExitDone, r.code, r.stderr)
	fix := []string{"ours, and kafka.brokers lead to others", "correct kafka.brokers or mysql.dsn", "--kafka-moved"}
	for _, service := range []string{"migrate", "scanner", "dispatcher", "all"} {
		others.refused(t, service, fix...)
	}
	r = notyet(t, others.environ, "", "migrate", "--kafka-moved")
	require.Equal(t, command.ExitDone, r.code, r.stderr)
	ours.refused(t, "scanner", "others, and kafka.brokers lead to ours")
}

// The second team on the same servers, with every name left as it is.
func TestASecondTeam(t *testing.T) {
	broker, zookeeper := kafkaCluster(t, "shared"), ensemble(t)
	var teams []team
	for range 2 {
		teams = append(teams, newTeam(t, filepath.Join(t.TempDir(), "notyet.db"), broker, zookeeper))
		r := notyet(t, teams[len(teams)-1].environ, "", "migrate", "--set", "slots=4")
		require.Equal(t, command.ExitDone, r.code, r.stderr)
	}
	first, second := teams[0], teams[1]
	first.serve(t, "scanner", "started")
	second.claimedBefore(t)
	second.refused(t, "scanner", "consumer group notyet-scanner belongs to installation", "set scanner.group")
	out := first.serve(t, "dispatcher", "took slots")
	second.refused(t, "dispatcher", "/notyet/installation", "set zookeeper.root")
	second.environ = append(second.environ, "NOTYET_ZOOKEEPER_ROOT=/second")
	second.serve(t, "dispatcher", "took slots")
	require.Equal(t, 1, strings.Count(out.String(), "took slots"), "the first one has what it had")
}

// claimedBefore waits until the group says whose it is.
func (m team) claimedBefore(t *testing.T) {
	t.Helper()
	c := client(t, strings.TrimPrefix(m.environ[1], "NOTYET_KAFKA_BROKERS="))
	require.Eventually(t, func() bool {
		claim, err := kafka.GroupClaim(t.Context(), c, "notyet-scanner", "notyet.intake", "notyet.reports")
		return err == nil && claim.Installation != ""
	}, time.Minute, 20*time.Millisecond)
}

// without takes a variable away.
func (m team) without(name string) team {
	return team{slices.DeleteFunc(slices.Clone(m.environ), func(pair string) bool { return strings.HasPrefix(pair, name+"=") })}
}

// Dispatchers share the slots without ZooKeeper and Redis, and one that elects by ZooKeeper gets none beside them.
func TestDispatchersElectThroughTheDatabase(t *testing.T) {
	t.Parallel()
	database, broker, zookeeper := filepath.Join(t.TempDir(), "notyet.db"), kafkaCluster(t, "one"), ensemble(t)
	team := func(member string, more ...string) team {
		m := newTeam(t, database, broker, zookeeper)
		m.environ = append(m.environ, "NOTYET_DISPATCHER_MEMBER_ID="+member)
		m.environ = append(m.environ, more...)
		return m
	}
	a := team("a", "NOTYET_ELECTION_KIND=mysql", "NOTYET_INDEX_KIND=mysql").without("NOTYET_ZOOKEEPER_SERVERS").without("NOTYET_REDIS_ADDRS")
	r := notyet(t, a.environ, "", "migrate", "--set", "slots=4")
	require.Equal(t, command.ExitDone, r.code, r.stderr)
	require.Contains(t, r.stdout, "topic notyet.wakes: created")
	first := a.serve(t, "dispatcher", `"slots":[0,1,2,3]`)
	b := team("b", "NOTYET_ELECTION_KIND=mysql", "NOTYET_INDEX_KIND=mysql").without("NOTYET_ZOOKEEPER_SERVERS").without("NOTYET_REDIS_ADDRS")
	b.serve(t, "dispatcher", "took slots")
	require.Eventually(t, func() bool { return strings.Contains(first.String(), `"members":2`) }, time.Minute, 5*time.Millisecond)

	r = notyet(t, a.environ, "", "deadletter", "reconcile", "--dry-run")
	require.Equal(t, command.ExitFailed, r.code)
	require.Contains(t, r.stderr, "dispatchers are at work (in the database): stop a, b first")

	redis := team("redis", "NOTYET_ELECTION_KIND=mysql").without("NOTYET_ZOOKEEPER_SERVERS")
	for _, role := range []string{"scanner", "dispatcher", "all"} {
		r = notyet(t, redis.environ, "", role)
		require.Equal(t, command.ExitFailed, r.code)
		require.Contains(t, r.stderr, "index.kind is redis here, and mysql for services at work")
	}

	c := team("c", "NOTYET_INDEX_KIND=mysql")
	r = notyet(t, c.environ, "", "deadletter", "reconcile", "--dry-run")
	require.Contains(t, r.stderr, "dispatchers are at work (in the database): stop a, b first", "whatever the settings of the command")
	c.serve(t, "dispatcher", "election.kind is zookeeper here, and mysql for dispatchers at work")
	r = notyet(t, c.environ, "", "doctor", "--json")
	require.Contains(t, r.stdout, "dispatchers elect by mysql")
	require.Contains(t, r.stdout, "services have index.kind mysql")
}

// The steps of "From the small form to the full form" in docs/settings.md, and back: what is
// scheduled in one form is delivered in the other.
func TestSmallFormToFullFormAndBack(t *testing.T) {
	t.Parallel()
	full := newTeam(t, filepath.Join(t.TempDir(), "notyet.db"), kafkaCluster(t, "one"), ensemble(t)).without("NOTYET_REDIS_ADDRS")
	small := team{append(slices.Clone(full.environ), "NOTYET_ELECTION_KIND=mysql", "NOTYET_INDEX_KIND=mysql")}.without("NOTYET_ZOOKEEPER_SERVERS")
	full.environ = append(full.environ, "NOTYET_REDIS_ADDRS="+miniredis.RunT(t).Addr())
	broker := strings.TrimPrefix(full.environ[1], "NOTYET_KAFKA_BROKERS=")
	_, err := kadm.NewClient(client(t, broker)).CreateTopic(t.Context(), 1, 1, nil, "orders")
	require.NoError(t, err)
	for i, m := range []team{small, full, small} {
		t.Run("", func(t *testing.T) { // its end stops the service
			run := func(args ...string) {
				t.Helper()
				r := notyet(t, m.environ, "", args...)
				require.Equal(t, command.ExitDone, r.code, "%v: %s%s", args, r.stdout, r.stderr)
			}
			run("migrate", "--set", "slots=4")
			m.serve(t, "all", "took slots")
			if id := fmt.Sprint(i); i > 0 {
				run("fire", "orders", id)
				require.Equal(t, []byte(id), records(t, broker, "orders", i)[i-1].Value)
			}
			id := fmt.Sprint(i + 1)
			run("schedule", "orders", id, "--delay", "1h", "--value", id)
			require.Eventually(t, func() bool { return notyet(t, m.environ, "", "get", "orders", id).code == command.ExitDone }, time.Minute, 20*time.Millisecond)
		})
	}
}

// A command that names no ensemble notices the dispatchers that elect there.
func TestReconcileNoticesAnotherElection(t *testing.T) {
	t.Parallel()
	database, broker, zookeeper := filepath.Join(t.TempDir(), "notyet.db"), kafkaCluster(t, "one"), ensemble(t)
	m := newTeam(t, database, broker, zookeeper)
	m.environ = append(m.environ, "NOTYET_DISPATCHER_MEMBER_ID=a")
	r := notyet(t, m.environ, "", "migrate", "--set", "slots=4")
	require.Equal(t, command.ExitDone, r.code, r.stderr)
	m.serve(t, "dispatcher", `"slots":[0,1,2,3]`)
	other := team{append(m.environ, "NOTYET_ELECTION_KIND=mysql")}.without("NOTYET_ZOOKEEPER_SERVERS")
	r = notyet(t, other.environ, "", "deadletter", "reconcile", "--dry-run")
	require.Equal(t, command.ExitFailed, r.code)
	require.Contains(t, r.stderr, "election.kind is mysql here")
	require.Contains(t, r.stderr, "stop a first")
}

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
