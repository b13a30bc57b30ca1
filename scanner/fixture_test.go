package scanner

import (
	"context"
	"database/sql"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kgo"
	"go.uber.org/zap"

	"github.com/notyet/notyet/internal/embedded"
	"github.com/notyet/notyet/internal/index"
	"github.com/notyet/notyet/internal/kafka"
	"github.com/notyet/notyet/internal/tracing"
	"github.com/notyet/notyet/schemas"
	"github.com/notyet/notyet/store"
	"github.com/notyet/notyet/test/counter"
	"github.com/notyet/notyet/test/recordtest"
)

const (
	bound       = time.Minute // of what takes moments, on a machine that does much else
	tick        = 5 * time.Millisecond
	intakeParts = 4
)

// fixture is what scanners work on: a broker with the intake, a database, an index.
type fixture struct {
	*testing.T
	cluster *kfake.Cluster
	redis   *embedded.Redis
	index   *index.Index
	kafka   kafka.Config
	store   *store.Store
	path    string // of the database
	client  *kgo.Client
	tracer  *tracing.Tracer // of the scanners made from now on; nil: they trace nobody
}

func newFixture(t *testing.T) *fixture {
	t.Parallel()
	f := &fixture{T: t, path: t.TempDir() + "/notyet.db"}
	var err error
	f.cluster, err = kfake.NewCluster(kfake.NumBrokers(1), kfake.SeedTopics(intakeParts, schemas.TopicIntake, schemas.TopicReports, schemas.TopicResults), kfake.SeedTopics(1, schemas.TopicCancels),
		kfake.BrokerConfigs(map[string]string{"group.initial.rebalance.delay.ms": "0"}))
	require.NoError(t, err)
	t.Cleanup(f.cluster.Close)
	f.kafka = kafka.Config{Brokers: f.cluster.ListenAddrs()}
	f.redis, err = embedded.StartRedis()
	require.NoError(t, err)
	t.Cleanup(f.redis.Close)
	f.index, err = index.New(index.Config{Addrs: []string{f.redis.Addr()}}, zap.NewNop())
	require.NoError(t, err)
	t.Cleanup(f.index.Close)
	f.store = f.open()
	require.NoError(t, f.store.Migrate(t.Context(), 4))
	f.client, err = kafka.NewProducer(f.kafka, zap.NewNop(), kgo.RecordPartitioner(kgo.ManualPartitioner()))
	require.NoError(t, err)
	t.Cleanup(f.client.Close)
	return f
}

// open opens the database as another process does.
func (f *fixture) open() *store.Store {
	s, err := store.Open(f.Context(), store.Config{DSN: "sqlite:" + f.path}, zap.NewNop())
	require.NoError(f, err)
	f.Cleanup(func() { _ = s.Close() })
	return s
}

// sql is the database under everybody's feet. The store's import has registered its driver.
func (f *fixture) sql(statements ...string) {
	f.Helper()
	db, err := sql.Open("sqlite", f.path+"?_pragma=busy_timeout(10000)")
	require.NoError(f, err)
	defer func() { require.NoError(f, db.Close()) }()
	for _, s := range statements {
		_, err := db.Exec(s)
		require.NoError(f, err, s)
	}
}

func (f *fixture) count(query string, args ...any) (n int) {
	f.Helper()
	db, err := sql.Open("sqlite", f.path+"?_pragma=busy_timeout(10000)")
	require.NoError(f, err)
	defer func() { require.NoError(f, db.Close()) }()
	require.NoError(f, db.QueryRow(query, args...).Scan(&n))
	return n
}

// publish sends records to the partitions that they name.
func (f *fixture) publish(records ...*kgo.Record) {
	f.Helper()
	require.NoError(f, f.client.ProduceSync(f.Context(), records...).FirstErr())
}

// ask makes a request for a task due in an hour; headers are pairs.
func ask(id string, partition int32, headers ...string) *kgo.Record {
	return record(schemas.TopicIntake, partition, append(headers, schemas.HeaderTopic, "orders", schemas.HeaderID, id, schemas.HeaderDelay, "1h")...)
}

func record(topic string, partition int32, headers ...string) *kgo.Record {
	return &kgo.Record{Topic: topic, Partition: partition, Key: []byte("key"), Value: []byte("body"), Headers: recordtest.Headers(headers...)}
}

func (f *fixture) eventually(what string, condition func() bool) {
	f.Helper()
	require.Eventually(f, condition, bound, tick, what)
}

// scanner makes one that does not run yet.
func (f *fixture) scanner(st *store.Store, cfg Config) *Scanner {
	f.Helper()
	s, err := New(Deps{Kafka: f.kafka, Store: st, Index: f.index, Metrics: prometheus.NewRegistry(), Log: zap.NewNop(), Tracer: f.tracer}, cfg)
	require.NoError(f, err)
	return s
}

// running is a scanner at work.
type running struct {
	*Scanner
	f    *fixture
	stop context.CancelFunc
	done chan error
}

func (f *fixture) start(st *store.Store, cfg Config) *running {
	f.Helper()
	return f.run(f.scanner(st, cfg))
}

func (f *fixture) run(s *Scanner) *running {
	f.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	r := &running{Scanner: s, f: f, stop: cancel, done: make(chan error, 1)}
	go func() { r.done <- r.Run(ctx) }()
	f.Cleanup(r.end)
	return r
}

func (r *running) end() {
	if r.stop == nil {
		return
	}
	r.stop()
	r.stop = nil
	require.NoError(r.f, <-r.done)
}

// events polls the results until done says that it has seen enough.
func (f *fixture) events(done func([]schemas.Event) bool) []schemas.Event {
	f.Helper()
	c, err := kafka.New(f.kafka, zap.NewNop(), kgo.ConsumeTopics(schemas.TopicResults), kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()), kgo.FetchMaxWait(50*time.Millisecond))
	require.NoError(f, err)
	defer c.Close()
	ctx, cancel := context.WithTimeout(f.Context(), bound)
	defer cancel()
	var out []schemas.Event
	for !done(out) {
		fetches := c.PollFetches(ctx)
		require.NoError(f, ctx.Err(), "events are missing; there are %v", out)
		fetches.EachRecord(func(r *kgo.Record) {
			e, err := schemas.DecodeEvent(r)
			require.NoError(f, err)
			out = append(out, e)
		})
	}
	return out
}

func atLeast(n int) func([]schemas.Event) bool {
	return func(events []schemas.Event) bool { return len(events) >= n }
}

// tell says that so many tasks are told of as scheduled.
func tell(n int) func([]schemas.Event) bool {
	return func(events []schemas.Event) bool { return len(byID(events, schemas.StateScheduled)) >= n }
}

// byID counts events of a state.
func byID(events []schemas.Event, state schemas.State) map[string]int {
	out := map[string]int{}
	for _, e := range events {
		if e.State == state {
			out[e.ID]++
		}
	}
	return out
}

var counted = counter.Value
