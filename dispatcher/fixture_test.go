package dispatcher

import (
	"bytes"
	"context"
	"database/sql"
	"database/sql/driver"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"
	"go.uber.org/zap"

	"github.com/notyet/notyet/callback"
	"github.com/notyet/notyet/dispatcher/flight"
	"github.com/notyet/notyet/internal/election"
	"github.com/notyet/notyet/internal/embedded"
	"github.com/notyet/notyet/internal/index"
	"github.com/notyet/notyet/internal/kafka"
	"github.com/notyet/notyet/internal/loop"
	"github.com/notyet/notyet/internal/sendlog"
	"github.com/notyet/notyet/internal/tracing"
	"github.com/notyet/notyet/schemas"
	"github.com/notyet/notyet/store"
	"github.com/notyet/notyet/store/intake"
	"github.com/notyet/notyet/task"
	"github.com/notyet/notyet/test/counter"
	"github.com/notyet/notyet/test/recordtest"
)

const (
	bound   = 3 * time.Minute // of what takes moments: a machine that stalls takes each target for silent, and asks it within 72 s
	tick    = 5 * time.Millisecond
	results = "results"
	// setUpTime is how far ahead tasks are due that a test must have staged before: a machine may
	// stand still for seconds meanwhile.
	setUpTime = 7 * time.Second
)

// fixture is what dispatchers work on: a broker, a database, an index, and tasks that the test stores itself.
type fixture struct {
	*testing.T
	cluster *kfake.Cluster
	redis   *embedded.Redis
	kafka   kafka.Config
	path    string // of the database
	store   *store.Store
	slots   []int
	source  intake.Source
	calls   *callback.Sender // of the dispatchers made from now on; nil: they make no callbacks
	tracer  *tracing.Tracer  // likewise; nil: they trace nobody
}

func newFixture(t *testing.T, slots int, topics ...string) *fixture {
	t.Parallel()
	f := &fixture{T: t}
	var err error
	f.cluster, err = kfake.NewCluster(kfake.NumBrokers(1), kfake.SeedTopics(1, append(topics, results)...))
	require.NoError(t, err)
	t.Cleanup(f.cluster.Close)
	f.kafka = kafka.Config{Brokers: f.cluster.ListenAddrs()}
	f.redis, err = embedded.StartRedis()
	require.NoError(t, err)
	t.Cleanup(f.redis.Close)
	f.path = t.TempDir() + "/notyet.db"
	f.store, err = store.Open(t.Context(), store.Config{DSN: "sqlite:" + f.path, Life: "(SELECT COALESCE(MAX(data), '') FROM meta WHERE name = 'life')"}, zap.NewNop())
	require.NoError(t, err)
	t.Cleanup(func() { _ = f.store.Close() })
	require.NoError(t, f.store.Migrate(t.Context(), slots))
	f.source, err = intake.New(f.store).Source(t.Context(), "intake", [16]byte{7}, 0, 0)
	require.NoError(t, err)
	for slot := range slots {
		f.slots = append(f.slots, slot)
	}
	return f
}

// sql is the database under everybody's feet. The store's import has registered its driver.
func (f *fixture) sql(statement string) {
	f.Helper()
	db, err := sql.Open("sqlite", f.path+"?_pragma=busy_timeout(10000)")
	require.NoError(f, err)
	defer func() { require.NoError(f, db.Close()) }()
	_, err = db.Exec(statement)
	require.NoError(f, err)
}

// setBack begins another life of the database, which lacks what the statements undo.
func (f *fixture) setBack(undo ...string) {
	f.Helper()
	f.sql("BEGIN IMMEDIATE; " + strings.Join(undo, "; ") + "; INSERT OR REPLACE INTO meta (name, value, data) VALUES ('life', 0, lower(hex(randomblob(8)))); COMMIT")
}

// schedule stores tasks as a scanner does, in one batch.
func (f *fixture) schedule(requests ...*kgo.Record) intake.Applied {
	f.Helper()
	return f.apply(false, requests)
}

// again stores requests that a database has forgotten.
func (f *fixture) again(requests ...*kgo.Record) intake.Applied {
	f.Helper()
	return f.apply(true, requests)
}

func (f *fixture) apply(again bool, requests []*kgo.Record) intake.Applied {
	f.Helper()
	b := intake.Batch{Advance: []intake.Advance{{Source: f.source.ID, From: f.source.Next, To: f.source.Next + int64(len(requests))}}}
	for i, r := range requests {
		request, err := schemas.Decode(r, schemas.Limits{})
		require.NoError(f, err)
		b.Changes = append(b.Changes, task.Change{Seq: task.Seq(f.source.ID, f.source.Next+int64(i)), Request: &request, Again: again})
	}
	done, err := intake.New(f.store).Apply(f.Context(), b, nowMillis)
	require.NoError(f, err)
	f.source.Next += int64(len(requests))
	return done
}

// change stores one change as a scanner does.
func (f *fixture) change(c task.Change) {
	f.Helper()
	_, err := intake.New(f.store).Apply(f.Context(), intake.Batch{Advance: []intake.Advance{{Source: f.source.ID, From: f.source.Next, To: f.source.Next + 1}}, Changes: []task.Change{c}}, nowMillis)
	require.NoError(f, err)
	f.source.Next++
}

// ask makes a request; headers are pairs.
func ask(topic, id string, due time.Time, headers ...string) *kgo.Record {
	headers = append(headers, schemas.HeaderTopic, topic, schemas.HeaderID, id, schemas.HeaderAt, strconv.FormatInt(due.UnixMilli(), 10))
	return &kgo.Record{Topic: "intake", Key: []byte(id), Value: []byte("body of " + id), Timestamp: time.Now(), Headers: recordtest.Headers(headers...)}
}

func askMany(n int, topic, prefix string, due time.Time, headers ...string) []*kgo.Record {
	out := make([]*kgo.Record, n)
	for i := range out {
		out[i] = ask(topic, fmt.Sprint(prefix, i), due, headers...)
	}
	return out
}

// mute keeps a topic from acknowledging, until the answer is called. Nothing of what is refused is written.
func (f *fixture) mute(topic string) (answer func()) {
	h := f.cluster.Fault(kfake.Fault{Keys: []kmsg.Key{kmsg.Produce}, Topic: topic, Err: kerr.NotEnoughReplicas, Count: -1})
	return h.Remove
}

// muteFor is mute for the batches with a task.
func (f *fixture) muteFor(topic, id string) (answer func()) {
	h := f.cluster.Fault(kfake.Fault{Keys: []kmsg.Key{kmsg.Produce}, Topic: topic, Err: kerr.NotEnoughReplicas, Count: -1, When: func(r kmsg.Request) bool {
		for _, t := range r.(*kmsg.ProduceRequest).Topics {
			for _, p := range t.Partitions {
				var batch kmsg.RecordBatch
				if batch.ReadFrom(p.Records) != nil {
					return true
				}
				records, err := kgo.DefaultDecompressor().Decompress(batch.Records, kgo.CompressionCodecType(batch.Attributes&7))
				if err != nil || bytes.Contains(records, []byte("body of "+id)) {
					return true
				}
			}
		}
		return false
	}})
	return h.Remove
}

// muteNow is mute for a dispatcher that dies meanwhile. The answer is for others: what the dead one still has on its way to the broker
// does not arrive.
func (f *fixture) muteNow(topic string) (answer func()) {
	var over atomic.Bool
	dead := map[int64]bool{} // producers; of the cluster's goroutine
	f.cluster.Fault(kfake.Fault{Keys: []kmsg.Key{kmsg.Produce}, Topic: topic, Err: kerr.NotEnoughReplicas, Count: -1, When: func(r kmsg.Request) bool {
		for _, t := range r.(*kmsg.ProduceRequest).Topics {
			for _, p := range t.Partitions {
				var batch kmsg.RecordBatch
				if err := batch.ReadFrom(p.Records); err != nil {
					return true
				}
				if !over.Load() {
					dead[batch.ProducerID] = true
				}
				if dead[batch.ProducerID] {
					return true
				}
			}
		}
		return false
	}})
	return func() { over.Store(true) }
}

// settledUpTo says whether every slot is settled beyond pos.
func (f *fixture) settledUpTo(pos time.Time) bool {
	slots, err := f.store.Slots(context.Background())
	require.NoError(f, err)
	return !slices.ContainsFunc(slots, func(s store.Slot) bool { return s.Done < pos.UnixMilli() })
}

func (f *fixture) eventually(what string, condition func() bool) {
	f.Helper()
	require.Eventually(f, condition, bound, tick, what)
}

// passes waits for an instant.
func (f *fixture) passes(at time.Time) {
	f.Helper()
	f.eventually("time goes by", func() bool { return time.Now().After(at) })
}

// collected is what has come so far.
type collected[T any] struct {
	mu   sync.Mutex
	list []T
}

func (c *collected[T]) add(more ...T) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.list = append(c.list, more...)
}

func (c *collected[T]) all() []T {
	c.mu.Lock()
	defer c.mu.Unlock()
	return slices.Clone(c.list)
}

func (c *collected[T]) count() int { return len(c.all()) }

// log collects what is published on a topic.
type log struct{ collected[*kgo.Record] }

func (f *fixture) read(topic string) *log {
	c, err := kafka.New(f.kafka, zap.NewNop(), kgo.ConsumeTopics(topic), kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()), kgo.FetchMaxWait(50*time.Millisecond))
	require.NoError(f, err)
	l, done := &log{}, make(chan struct{})
	go func() {
		defer close(done)
		for {
			fetches := c.PollFetches(context.Background())
			if fetches.IsClientClosed() {
				return
			}
			l.add(fetches.Records()...)
		}
	}()
	f.Cleanup(func() { c.Close(); <-done })
	return l
}

// copies counts deliveries by task id.
func (l *log) copies() map[string]int {
	out := map[string]int{}
	for _, r := range l.all() {
		out[recordtest.Header(r, schemas.HeaderID)]++
	}
	return out
}

// events of a state, by task id.
func (l *log) events(t require.TestingT, state schemas.State) map[string][]schemas.Event {
	out := map[string][]schemas.Event{}
	for _, r := range l.all() {
		e, err := schemas.DecodeEvent(r)
		require.NoError(t, err)
		if e.State == state {
			out[e.ID] = append(out[e.ID], e)
		}
	}
	return out
}

// members is an election that the test decides.
type members struct {
	mu      sync.Mutex
	current election.Assignment
	trusted bool
	alive   map[string]bool
	watch   chan struct{}
	failed  chan error
	left    func() // called when the dispatcher leaves

	reported []error
}

var _ election.Source = (*members)(nil)

func (f *fixture) elect(epoch int64) *members {
	return &members{current: election.Assignment{Epoch: epoch, Slots: f.slots}, trusted: true, alive: map[string]bool{}, watch: make(chan struct{}, 1), failed: make(chan error, 1)}
}

func (m *members) Run(ctx context.Context) error {
	select {
	case <-ctx.Done():
		if m.left != nil {
			m.left()
		}
		return nil
	case err := <-m.failed:
		return err
	}
}

func (m *members) change(f func()) {
	m.mu.Lock()
	f()
	m.mu.Unlock()
	select {
	case m.watch <- struct{}{}:
	default:
	}
}

func (m *members) trust(yes bool) { m.change(func() { m.trusted = yes }) }

func (m *members) Watch() <-chan struct{} { return m.watch }

func (m *members) Current() election.Assignment {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.current
}

func (m *members) Trusted() bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.trusted
}

func (m *members) Report(err error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.reported = append(m.reported, err)
}

// says waits for the next report, which must be of a process that works, or fail.
func (f *fixture) says(m *members, works bool) {
	f.Helper()
	f.eventually("the election is told", func() bool {
		m.mu.Lock()
		defer m.mu.Unlock()
		n := len(m.reported)
		return n > 0 && (m.reported[n-1] == nil) == works
	})
}

func (m *members) Alive(member string) bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.alive[member]
}

// running is a dispatcher at work.
type running struct {
	*Dispatcher
	f    *fixture
	sent *sendlog.Log
	stop context.CancelFunc
	done chan error
}

// make is a dispatcher with a send log in dir that does not run: the test takes its steps.
func (f *fixture) make(m *members, dir string, cfg Config) (*Dispatcher, *sendlog.Log) {
	f.Helper()
	cfg.Results = results
	sent, err := sendlog.Open(dir, sendlog.Config{Now: f.store.Clock().Now}, zap.NewNop())
	require.NoError(f, err)
	ix, err := index.New(index.Config{Addrs: []string{f.redis.Addr()}}, zap.NewNop())
	require.NoError(f, err)
	f.Cleanup(ix.Close)
	d, err := New(Deps{Kafka: f.kafka, Store: f.store, Index: ix, Members: m, SendLog: sent, Metrics: prometheus.NewRegistry(), Log: zap.NewNop(), Callbacks: f.calls, Tracer: f.tracer}, cfg)
	require.NoError(f, err)
	return d, sent
}

// stepped makes a dispatcher that does not run.
func (f *fixture) stepped(m *members, cfg Config) *Dispatcher {
	f.Helper()
	d, sent := f.make(m, f.TempDir(), cfg)
	f.Cleanup(func() { d.closeClients(context.Background()); d.results.Close(0); _ = sent.Close() })
	return d
}

// alone is what a part of a dispatcher works with, for a test of that part.
func alone(t *testing.T, cfg Config) *shared {
	t.Helper()
	cfg, err := cfg.withDefaults()
	require.NoError(t, err)
	return newShared(cfg, new(store.Store), prometheus.NewRegistry(), zap.NewNop())
}

// inFlight makes what a part reports to, for a test of that part.
func (sh *shared) inFlight() *flight.Flight {
	return flight.New(sh.cfg.flight(), sh.clock, sh.metrics.Metrics, sh.kicks, sh.log)
}

// start runs a dispatcher with a send log in dir.
func (f *fixture) start(m *members, dir string, cfg Config) *running {
	f.Helper()
	d, sent := f.make(m, dir, cfg)
	ctx, cancel := context.WithCancel(context.Background())
	r := &running{Dispatcher: d, f: f, sent: sent, stop: cancel, done: make(chan error, 1)}
	go func() { r.done <- d.Run(ctx) }()
	f.Cleanup(func() { _ = r.end() })
	return r
}

// end stops a dispatcher in an orderly way and answers what Run said.
func (r *running) end() error {
	if r.stop == nil {
		return nil
	}
	r.stop()
	r.stop = nil
	err := <-r.done
	require.NoError(r.f, r.sent.Close())
	return err
}

// crash ends a dispatcher as it stands: nothing drains, no slot is given back.
func (r *running) crash(m *members) {
	r.f.Helper()
	m.failed <- context.DeadlineExceeded
	err := <-r.done
	require.ErrorIs(r.f, err, context.DeadlineExceeded)
	r.stop()
	r.stop = nil
	require.NoError(r.f, r.sent.Close())
}

// inside returns a number of what is in flight.
func (r *running) inside(read func(flight.Figures) int) int { return read(r.flight.Figures()) }

func (r *running) stagedTasks() int {
	return r.inside(func(in flight.Figures) int { return in.StagedTasks })
}

func (r *running) owned() int { return r.flight.Figures().Slots }

var counted = counter.Value

// lookahead is how far ahead the next claim reaches, ms.
func (d *Dispatcher) lookahead() int64 { return d.claimer.lookahead.ahead.Load() }

// delivers reads the bodies of what is claimed and sends what is due of it, but for some, and Kafka has it at once. What was sent is
// concluded, and not settled yet.
func (f *fixture) delivers(d *Dispatcher, but ...string) {
	f.Helper()
	for {
		batch, _ := d.flight.Bodies.Next()
		if batch == nil {
			break
		}
		d.fetcher.fetch(f.Context(), batch)
	}
	for _, one := range released(d) {
		if !slices.Contains(but, recordtest.Header(one.Record, schemas.HeaderID)) {
			d.sender.answered(one.Task, one.Record, nil)
		}
	}
	d.settler.note(f.Context())
}

// released takes what is to be sent now.
func released(d *Dispatcher) []flight.Sendable {
	send, _ := d.flight.Due.Take()
	return send
}

// producer is the client that meets the first topics.
func (d *Dispatcher) producer() *kgo.Client {
	d.producers.mu.Lock()
	defer d.producers.mu.Unlock()
	return d.producers.all[0].client
}

// topicsMet is how many topics each client has met.
func (d *Dispatcher) topicsMet() (met []int) {
	d.producers.mu.Lock()
	defer d.producers.mu.Unlock()
	for _, p := range d.producers.all {
		met = append(met, p.topics)
	}
	return met
}

func claimTo(ctx context.Context, s *store.Store, slots []int, epoch, pos int64) error {
	return intake.New(s).Line().Claim(ctx, 0, slots, make([]int64, len(slots)), epoch, pos)
}

func nowMillis() int64 { return time.Now().UnixMilli() }

// told lets the index know of stored tasks, as a scanner does.
func (r *running) told(places []store.Place) {
	r.f.Helper()
	for _, p := range places {
		require.NoError(r.f, r.indexer.index.Add(r.f.Context(), []index.Entry{p.Place}))
		require.NoError(r.f, r.indexer.index.(*index.Index).Wake(r.f.Context(), []index.SlotPos{{Slot: p.Slot, Pos: p.Due}}))
	}
}

func (r *running) warmed() {
	r.f.Helper()
	r.f.eventually("the index is loaded", func() bool {
		marks, err := r.indexer.index.Marks(r.f.Context(), r.f.slots)
		return err == nil && len(marks) == len(r.f.slots)
	})
}

// slowDatabase makes connections that take long for some queries.
type slowDatabase struct {
	real driver.Driver
	dsn  string
	slow string // what they say
	took time.Duration
}

func (d slowDatabase) Connect(context.Context) (driver.Conn, error) {
	c, err := d.real.Open(d.dsn)
	if err != nil {
		return nil, err
	}
	return slowConn{c.(embeddedConn), d}, nil
}

func (d slowDatabase) Driver() driver.Driver { return d.real }

// newSlowFixture is a database that is slow with some queries, and a dispatcher that does not run, in virtual time. There is nothing else.
func newSlowFixture(t *testing.T, slow string, took time.Duration) (*fixture, *Dispatcher) {
	path := t.TempDir() + "/notyet.db"
	db, err := sql.Open("sqlite", path)
	require.NoError(t, err)
	defer func() { require.NoError(t, db.Close()) }()
	st, err := store.Open(t.Context(), store.Config{Connector: slowDatabase{db.Driver(), path + "?_txlock=immediate&_pragma=journal_mode(WAL)", slow, took}}, zap.NewNop())
	require.NoError(t, err)
	t.Cleanup(func() { _ = st.Close() })
	require.NoError(t, st.Migrate(t.Context(), 1))
	src, err := intake.New(st).Source(t.Context(), "intake", [16]byte{7}, 0, 0)
	require.NoError(t, err)
	f := &fixture{T: t, store: st, slots: []int{0}, source: src}
	ix, err := index.New(index.Config{Addrs: []string{"127.0.0.1:1"}}, zap.NewNop()) // away: it is a hint
	require.NoError(t, err)
	t.Cleanup(func() { ix.Close(); time.Sleep(2 * time.Second) }) // its dialling ends within a second
	sent, err := sendlog.Open(t.TempDir(), sendlog.Config{}, zap.NewNop())
	require.NoError(t, err)
	t.Cleanup(func() { _ = sent.Close() })
	d, err := New(Deps{Kafka: kafka.Config{Brokers: []string{"127.0.0.1:1"}}, Store: st, Index: ix, Members: f.elect(5), SendLog: sent, Metrics: prometheus.NewRegistry(), Log: zap.NewNop()},
		Config{MemberID: "one", Results: results})
	require.NoError(t, err)
	t.Cleanup(func() { d.closeClients(context.Background()); d.results.Close(0) })
	return f, d
}

// embeddedConn is what database/sql uses of a connection.
type embeddedConn interface {
	driver.Conn
	driver.ConnBeginTx
	driver.ExecerContext
	driver.QueryerContext
}

type slowConn struct {
	embeddedConn
	db slowDatabase
}

func (c slowConn) QueryContext(ctx context.Context, query string, args []driver.NamedValue) (driver.Rows, error) {
	if strings.Contains(query, c.db.slow) {
		loop.Rest(ctx, c.db.took)
		if ctx.Err() != nil {
			return nil, ctx.Err()
		}
	}
	return c.embeddedConn.QueryContext(ctx, query, args)
}
