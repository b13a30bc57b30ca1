package e2e

import (
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kadm"
	"go.uber.org/zap"
	"go.uber.org/zap/zaptest/observer"

	"github.com/notyet/notyet/scanner"
	"github.com/notyet/notyet/schemas"
)

// brokers are three, the third of which comes back from a copy of its folder.
type brokers struct {
	*ownServer
	copied string
}

func newBrokers(t *testing.T) *brokers {
	b := &brokers{&ownServer{t: t, kind: "kafka", args: []string{"--cluster"}, env: []string{"SERVERS_KAFKA_SESSION_MS=9000"}}, filepath.Join(t.TempDir(), "copy")}
	b.begin()
	t.Cleanup(func() { // the last ones would wait for a controller
		for _, name := range []string{"kafka-1", "kafka-2", "kafka-3"} {
			b.kill(name)
		}
	})
	return b
}

func (b *brokers) addrs() string {
	host, port, err := net.SplitHostPort(b.addr)
	require.NoError(b.t, err)
	first, err := strconv.Atoi(port)
	require.NoError(b.t, err)
	all := make([]string, 3)
	for i := range all {
		all[i] = net.JoinHostPort(host, strconv.Itoa(first+10*i))
	}
	return strings.Join(all, ",")
}

func (b *brokers) third() string { return filepath.Join(b.dir, "kafka-3", "data") }

// restore puts the third broker's folder back, while it is down.
func (b *brokers) restore() {
	b.t.Helper()
	require.NoError(b.t, os.RemoveAll(b.third()))
	require.NoError(b.t, os.CopyFS(b.third(), os.DirFS(b.copied)))
}

// kill kills one of them, if it runs.
func (b *brokers) kill(name string) {
	text, _ := os.ReadFile(filepath.Join(b.dir, name, "pid"))
	pid := strings.TrimSpace(string(text))
	command, _ := os.ReadFile(filepath.Join("/proc", pid, "cmdline"))
	if n, err := strconv.Atoi(pid); err == nil && strings.Contains(string(command), b.dir) {
		require.NoError(b.t, syscall.Kill(n, syscall.SIGKILL))
	}
}

// inSync waits until so many copies of the intake's partition are.
func (s *stack) inSync(n int) {
	s.t.Helper()
	s.awaitPartition(fmt.Sprint(n, " copies are in sync"), func(p kadm.PartitionDetail) bool { return len(p.ISR) == n })
}

func (s *stack) awaitPartition(what string, is func(p kadm.PartitionDetail) bool) {
	s.t.Helper()
	require.Eventually(s.t, func() bool {
		topics, err := kadm.NewClient(s.client).ListTopics(s.t.Context(), s.intake)
		return err == nil && is(topics[s.intake].Partitions[0])
	}, 2*time.Minute, 100*time.Millisecond, what)
}

// TestOneBrokerOfThreeFromACopy: a broker comes back from an older copy of its folder, and another one
// dies. Where the restored one follows the third, nobody notices. Where it is elected uncleanly, the
// partition halts, and says so.
func TestOneBrokerOfThreeFromACopy(t *testing.T) {
	t.Parallel()
	b := newBrokers(t)
	stacks := map[string]*stack{}
	for _, name := range []string{"three copies", "two copies"} {
		stacks[name] = newStackBeside(t, own{broker: b.addrs()}, false, false, 1, usualSlots)
	}
	three, two := stacks["three copies"], stacks["two copies"]
	admin, one := kadm.NewClient(two.client), "1"
	var assign kadm.AlterPartitionAssignmentsReq
	assign.Assign(two.intake, 0, []int32{3, 1})
	assigned, err := admin.AlterPartitionAssignments(t.Context(), assign)
	require.NoError(t, err)
	require.NoError(t, assigned.Error())
	_, err = admin.AlterTopicConfigs(t.Context(), []kadm.AlterConfig{{Name: "min.insync.replicas", Value: &one}}, two.intake)
	require.NoError(t, err)
	three.inSync(3)
	two.inSync(2)
	total, halts := 0, map[string]func() int{}
	for name, s := range stacks {
		core, lines := observer.New(zap.WarnLevel)
		s.log, halts[name] = zap.New(core), func() int { return lines.FilterMessageSnippet("nothing more is read of it").Len() }
		s.scanner()
	}
	publish := func(n int) {
		t.Helper()
		for _, s := range stacks {
			for range n {
				s.publish(keyed(request(s.intake, s.name+".target", schemas.HeaderAt, inMillis(time.Hour)), fmt.Sprint(total), "v"))
			}
		}
		total += n
		for _, s := range stacks {
			require.Eventually(t, func() bool { return s.tasks() == total }, time.Minute, 20*time.Millisecond)
		}
	}
	publish(30)
	b.down("kafka-3")
	require.NoError(t, os.CopyFS(b.copied, os.DirFS(b.third())))
	b.up("kafka-3")
	three.inSync(3)
	two.inSync(2)
	publish(20)

	b.down("kafka-3")
	publish(10)
	b.restore()
	b.kill("kafka-1")
	b.up("kafka-3")
	two.awaitPartition("there is no leader", func(p kadm.PartitionDetail) bool { return p.Leader < 0 })
	var partition kadm.TopicsSet
	partition.Add(two.intake, 0)
	_, err = admin.ElectLeaders(t.Context(), kadm.ElectLiveReplica, partition)
	require.NoError(t, err)
	two.awaitPartition("the restored one is the leader", func(p kadm.PartitionDetail) bool { return p.Leader == 3 })
	b.up("kafka-1")
	three.inSync(3)
	two.inSync(2)
	for range 10 {
		two.publish(keyed(request(two.intake, two.name+".target", schemas.HeaderAt, inMillis(time.Hour)), "new", "v"))
	}
	require.Eventually(t, func() bool { return two.stands().State == scanner.StateDiverged }, time.Minute, 100*time.Millisecond)
	p := two.stands()
	require.EqualValues(t, total, p.Next)
	require.EqualValues(t, 30, *p.SameUpTo)
	require.Eventually(t, func() bool { return halts["two copies"]() > 0 }, time.Minute, 20*time.Millisecond)
	require.Equal(t, total, two.tasks())
	two.restart()
	require.Eventually(t, func() bool { return two.tasks() == total+10 }, time.Minute, 20*time.Millisecond)
	delete(stacks, "two copies")
	publish(10)
	require.Equal(t, scanner.StateOK, three.stands().State)
	require.Zero(t, halts["three copies"]())
}
