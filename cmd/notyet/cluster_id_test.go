package main

import (
	"context"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kfake"

	"github.com/notyet/notyet/cmd/internal/command"
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
		owner, err := kafka.GroupOwner(t.Context(), c, "notyet-scanner", "notyet.intake", "notyet.reports")
		return err == nil && owner != ""
	}, time.Minute, 20*time.Millisecond)
}
