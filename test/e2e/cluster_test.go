package e2e

import (
	"context"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/HdrHistogram/hdrhistogram-go"
	"github.com/cespare/xxhash/v2"
	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/notyet/notyet/schemas"
	"github.com/notyet/notyet/test/mysqltest"
	"github.com/notyet/notyet/test/program"
	"github.com/notyet/notyet/test/recordtest"
)

// These tests run the built program as several processes against real servers. They mostly wait, so they run side by side, as many as
// there are cores; -parallel 1 lets each measure alone. NOTYET_CLUSTER_TASKS makes them long: 100000 is the published form.

// cluster is a stack whose stages are processes of their own.
type cluster struct {
	*stack
	binary string
	dir    string
	env    []string
	mu     sync.Mutex // of port and all: tests start processes from several goroutines
	port   int
	all    []*proc // that were started
}

func newCluster(t *testing.T) *cluster { return newClusterOf(t, usualSlots) }

// newClusterOf has half of the targets in a second database, if the environment names a server for it.
func newClusterOf(t *testing.T, slots int) *cluster {
	c := oneDatabase(t, slots)
	if second := os.Getenv("NOTYET_TEST_SECOND_DSN"); second != "" {
		dsn := mysqltest.FreshOn(t, second)
		c.adds(dsn)
		c.with(dsn)
		c.tries(0, "shards", "move", "*", "1", "--part", "2/2")
	}
	return c
}

func oneDatabase(t *testing.T, slots int) *cluster {
	for _, name := range []string{"NOTYET_KAFKA_BROKERS", "NOTYET_MYSQL_DSN", "NOTYET_REDIS_ADDRS", "NOTYET_ZOOKEEPER_SERVERS"} {
		if os.Getenv(name) == "" {
			t.Skip(name + " is not set")
		}
	}
	t.Parallel()
	return clusterOn(t, newStackIn(t, true, false, 8, slots))
}

func clusterOn(t *testing.T, s *stack) *cluster {
	dir := t.TempDir()
	if keep := os.Getenv("NOTYET_CLUSTER_LOGS"); keep != "" { // keeps the logs of the processes
		dir = filepath.Join(keep, s.name)
		require.NoError(t, os.MkdirAll(dir, 0o755))
	}
	return &cluster{stack: s, dir: dir, binary: program.Binary(t), env: s.environ()}
}

// adds has the processes that are spawned from now on work on another database too.
func (c *cluster) adds(dsn string) { c.notyet("shards", "add", c.knows(dsn)) }

// knows has the processes that are spawned from now on know another database, which is not added yet. It returns its number.
func (c *cluster) knows(dsn string) (number string) {
	all := c.dsn
	c.env = slices.DeleteFunc(slices.Clone(c.env), func(kv string) bool {
		had, several := strings.CutPrefix(kv, "NOTYET_MYSQL_SHARDS=")
		if several {
			all = had
		}
		return several || strings.HasPrefix(kv, "NOTYET_MYSQL_DSN=")
	})
	c.env = append(c.env, "NOTYET_MYSQL_SHARDS="+all+","+dsn)
	return strconv.Itoa(strings.Count(all, ",") + 1)
}

// environ returns the variables that point a process of the program at the stack's servers and
// names.
func (s *stack) environ() []string {
	return append(program.Environ(),
		"NOTYET_KAFKA_BROKERS="+strings.Join(s.kafka.Brokers, ","), "NOTYET_MYSQL_DSN="+s.dsn, "NOTYET_REDIS_ADDRS="+strings.Join(s.redis.Addrs, ","),
		"NOTYET_REDIS_CLUSTER="+strconv.FormatBool(s.redis.Cluster), "NOTYET_REDIS_MASTER="+s.redis.MasterName,
		"NOTYET_ZOOKEEPER_SERVERS="+strings.Join(s.zk, ","), "NOTYET_ZOOKEEPER_ROOT=/"+s.name, "NOTYET_REDIS_PREFIX="+s.name,
		"NOTYET_INTAKE_TOPICS="+s.intake, "NOTYET_REPORTS_TOPIC="+s.reports, "NOTYET_RESULTS_TOPIC="+s.results,
		"NOTYET_SCANNER_GROUP="+s.name, "NOTYET_LOG_FORMAT=console", "NOTYET_HTTP_PPROF=true",
		"NOTYET_DISPATCHER_UNDELIVERABLE_AFTER=5s",
	)
}

// proc is one process of the program.
type proc struct {
	t    *testing.T
	cmd  *exec.Cmd
	name string
	log  string
	done chan error
}

func (c *cluster) spawn(name string, args ...string) *proc {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.port++
	log, err := os.Create(filepath.Join(c.dir, fmt.Sprintf("%s-%d.log", name, c.port)))
	require.NoError(c.t, err)
	cmd := exec.Command(c.binary, args...)
	cmd.Env = append(slices.Clone(c.env), "NOTYET_HTTP_ADDR=127.0.0.1:0", "NOTYET_DISPATCHER_MEMBER_ID="+fmt.Sprintf("%s-%d", name, c.port),
		"NOTYET_SENDLOG_DIR="+filepath.Join(c.dir, name+"-sendlog"))
	cmd.Stdout, cmd.Stderr = log, log
	require.NoError(c.t, cmd.Start())
	p := &proc{t: c.t, cmd: cmd, name: name, log: log.Name(), done: make(chan error, 1)}
	c.all = append(c.all, p)
	go func() { p.done <- cmd.Wait() }()
	c.t.Cleanup(func() {
		p.stop()
		if c.t.Failed() {
			text, _ := os.ReadFile(p.log)
			c.t.Logf("--- %s\n%s", p.log, tail(text, 6000))
		}
	})
	return p
}

func tail(b []byte, n int) string {
	if len(b) > n {
		b = b[len(b)-n:]
	}
	return string(b)
}

func (p *proc) kill() {
	_ = p.cmd.Process.Signal(syscall.SIGKILL)
	<-p.done
	p.done <- nil
}

func (p *proc) stop() {
	_ = p.cmd.Process.Signal(syscall.SIGTERM)
	select {
	case err := <-p.done:
		p.done <- nil
		if err != nil && !strings.Contains(err.Error(), "killed") {
			p.t.Errorf("%s ended with %v", p.name, err)
		}
	case <-time.After(2 * time.Minute):
		p.t.Errorf("%s did not stop within two minutes", p.name)
		_ = p.cmd.Process.Kill()
	}
}

func clusterTasks(t *testing.T, short int) int {
	return clusterNumber(t, "NOTYET_CLUSTER_TASKS", short)
}

func clusterNumber(t *testing.T, name string, short int) int {
	if v := os.Getenv(name); v != "" {
		n, err := strconv.Atoi(v)
		require.NoError(t, err)
		return n
	}
	return short
}

// delivery is what was observed of one task.
type delivery struct {
	due    int64
	hash   uint64
	target string
	copies []arrival
}

type arrival struct {
	at      int64 // LogAppendTime
	attempt string
	key     string
}

func hashRecord(r *kgo.Record, headers []kgo.RecordHeader) uint64 {
	h := xxhash.New()
	_, _ = h.Write(r.Key)
	_, _ = h.WriteString("\x00")
	_, _ = h.Write(r.Value)
	for _, kv := range headers {
		_, _ = h.WriteString("\x00" + kv.Key + "\x00")
		_, _ = h.Write(kv.Value)
	}
	return h.Sum64()
}

// load publishes n tasks that are due at random times within a span. The span begins after the head
// start. load waits for pace between batches and returns the expected deliveries.
func (c *cluster) load(targets []string, n int, head, span time.Duration) map[string]*delivery {
	wants := make(map[string]*delivery, n)
	begin := time.Now().Add(head)
	for i := range n {
		id := fmt.Sprintf("task-%d", i)
		due := begin.Add(time.Duration(rand.Int64N(int64(span)))).UnixMilli()
		r := request(c.intake, targets[i%len(targets)], schemas.HeaderAt, strconv.FormatInt(due, 10), schemas.HeaderID, id, schemas.HeaderEvents, "none", "app", "e2e", "app", strconv.Itoa(i))
		r.Key, r.Value = []byte("key-"+strconv.Itoa(i%1000)), []byte(strings.Repeat("x", 150)+strconv.Itoa(i))
		wants[id] = &delivery{due: due, hash: hashRecord(r, r.Headers[4:]), target: targets[i%len(targets)]}
		c.client.Produce(context.Background(), r, func(_ *kgo.Record, err error) {
			if err != nil {
				c.t.Error(err)
			}
		})
	}
	require.NoError(c.t, c.client.Flush(c.t.Context()))
	return wants
}

// collect reads the targets until every task has arrived and then until grace has passed without
// another copy.
func (c *cluster) collect(targets []string, wants map[string]*delivery, bound, grace time.Duration) {
	// The broker's arrival time counts, so the reader may be slow: it must not burden the machine
	// that is measured.
	reader := c.reader(targets, kgo.FetchMinBytes(1<<20), kgo.FetchMaxWait(500*time.Millisecond))
	missing := len(wants)
	deadline := time.Now().Add(bound)
	quiet := time.Time{}
	for time.Now().Before(deadline) {
		ctx, cancel := context.WithTimeout(c.t.Context(), time.Second)
		f := reader.PollFetches(ctx)
		cancel()
		f.EachRecord(func(r *kgo.Record) {
			d, rest, err := schemas.ParseDelivery(r)
			require.NoError(c.t, err)
			w := wants[d.ID]
			require.NotNil(c.t, w, "a phantom: %s", d.ID)
			require.Equal(c.t, w.hash, hashRecord(r, rest), "changed on the way: %s", d.ID)
			if len(w.copies) == 0 {
				missing--
			}
			w.copies = append(w.copies, arrival{r.Timestamp.UnixMilli(), recordtest.Header(r, schemas.HeaderAttempt), d.Key})
			quiet = time.Time{}
		})
		if missing == 0 {
			if quiet.IsZero() {
				quiet = time.Now()
			} else if time.Since(quiet) > grace {
				return
			}
		}
	}
	require.Zero(c.t, missing, "lost")
}

// figures of one run: lateness of first copies, and counts that must be zero.
type figures struct {
	early, doubled int
	late           *hdrhistogram.Histogram
}

func measure(t *testing.T, wants map[string]*delivery) figures {
	f := figures{late: hdrhistogram.New(1, 10*60*1000, 3)}
	for id, w := range wants {
		first := slices.MinFunc(w.copies, func(a, b arrival) int { return int(a.at - b.at) })
		if first.at < w.due {
			f.early++
		}
		require.NoError(t, f.late.RecordValue(max(first.at-w.due, 0)))
		if len(w.copies) > 1 {
			f.doubled += len(w.copies) - 1
		}
		for _, a := range w.copies {
			require.Equal(t, w.copies[0].key, a.key, "copies of one attempt must carry one key: %s", id)
			require.Equal(t, "1", a.attempt)
		}
	}
	t.Logf("tasks %d, lost 0, early %d, extra copies %d, lateness ms p50 %d p99 %d p99.9 %d max %d", len(wants), f.early, f.doubled,
		f.late.ValueAtQuantile(50), f.late.ValueAtQuantile(99), f.late.ValueAtQuantile(99.9), f.late.Max())
	return f
}

// TestClusterDeliversEachOnce: two scanners and two dispatchers share the work.
func TestClusterDeliversEachOnce(t *testing.T) {
	onlyLong(t, "TestClusterSurvivesKills does the same, and kills")
	c := newCluster(t)
	n := clusterTasks(t, 10_000)
	span := time.Duration(n) * time.Minute / 100_000
	targets := []string{c.name + ".a", c.name + ".b", c.name + ".c", c.name + ".d"}
	c.judging(4, targets...)
	for _, name := range []string{"scanner1", "scanner2"} {
		c.spawn(name, "scanner")
	}
	for _, name := range []string{"dispatcher1", "dispatcher2"} {
		c.spawn(name, "dispatcher")
	}
	c.warm()
	wants := c.load(targets, n, 5*time.Second+time.Duration(n)*100*time.Microsecond, span) // stored before the first is due
	c.collect(targets, wants, span+60*time.Second, 2*time.Second)
	f := measure(t, wants)
	require.Zero(t, f.early)
	require.Zero(t, f.doubled)
}

// warm delivers a few tasks, so that the start is not measured.
func (c *cluster) warm() {
	topic := c.name + ".warm"
	c.topics(1, topic)
	wants := map[string]*delivery{}
	for i := range 200 {
		id := fmt.Sprintf("warm-%d", i)
		r := request(c.intake, topic, schemas.HeaderDelay, "1ms", schemas.HeaderID, id, schemas.HeaderEvents, "none")
		wants[id] = &delivery{hash: hashRecord(r, nil)}
		c.publish(r)
	}
	c.collect([]string{topic}, wants, time.Minute, 0)
}

// TestClusterSurvivesKills kills the owner of slots twice, a scanner once, and empties Redis once,
// all under load. Extra copies may only come from tasks that a killed dispatcher had in doubt.
func TestClusterSurvivesKills(t *testing.T) {
	c := newCluster(t)
	n := clusterTasks(t, 10_000)
	span := max(time.Duration(n)*time.Minute/100_000, 20*time.Second)
	targets := []string{c.name + ".a", c.name + ".b"}
	c.judging(4, targets...)
	scanner := c.spawn("scanner1", "scanner")
	c.spawn("scanner2", "scanner")
	first := c.spawn("dispatcher1", "dispatcher")
	second := c.spawn("dispatcher2", "dispatcher")
	c.warm()
	head := 3*time.Second + time.Duration(n)*100*time.Microsecond
	begin := time.Now()
	var kills []int64
	var faults sync.WaitGroup
	faults.Go(func() {
		at := func(part float64) {
			time.Sleep(time.Until(begin.Add(head + time.Duration(part*float64(span)))))
		}
		at(-0.05)
		scanner.kill()
		at(0.2)
		kills = append(kills, time.Now().UnixMilli())
		first.kill()
		c.spawn("scanner1", "scanner")
		at(0.4)
		c.spawn("dispatcher3", "dispatcher")
		c.emptyRedis()
		at(0.6)
		kills = append(kills, time.Now().UnixMilli())
		second.kill()
	})
	wants := c.load(targets, n, head, span)
	c.collect(targets, wants, span+90*time.Second, 3*time.Second)
	faults.Wait()
	f := measure(t, wants)
	require.Zero(t, f.early)
	unexplained := 0
	for _, w := range wants {
		first := slices.MinFunc(w.copies, func(a, b arrival) int { return int(a.at - b.at) }).at
		if len(w.copies) > 1 && !claimedAtAny(kills, w.due, first) {
			unexplained++
		}
	}
	require.Zero(t, unexplained, "extra copies far from any kill")
}

// claimedAtAny reports whether a task may have been claimed and not closed when its owner was killed: it
// was due or sent around a kill.
func claimedAtAny(kills []int64, due, first int64) bool {
	return slices.ContainsFunc(kills, func(k int64) bool { return max(due, first) > k-2000 && due < k+1000 })
}

// emptyRedis does to this stack what FLUSHALL does to a server.
func (c *cluster) emptyRedis() {
	n, err := c.store.SlotCount(context.Background())
	require.NoError(c.t, err)
	for slot := range n {
		require.NoError(c.t, c.index.Clear(context.Background(), slot))
	}
}
