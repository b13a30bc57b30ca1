package e2e

import (
	"cmp"
	"context"
	"crypto/rand"
	"encoding/hex"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"
	"go.uber.org/zap"
	"go.uber.org/zap/zapcore"
	"golang.org/x/sync/errgroup"

	"github.com/notyet/notyet/deadletter"
	"github.com/notyet/notyet/dispatcher"
	"github.com/notyet/notyet/internal/election"
	"github.com/notyet/notyet/internal/embedded"
	"github.com/notyet/notyet/internal/index"
	"github.com/notyet/notyet/internal/kafka"
	"github.com/notyet/notyet/internal/sendlog"
	"github.com/notyet/notyet/internal/shardmap"
	"github.com/notyet/notyet/scanner"
	"github.com/notyet/notyet/store"
	"github.com/notyet/notyet/store/intake"
	"github.com/notyet/notyet/store/letters"
	"github.com/notyet/notyet/store/look"
	"github.com/notyet/notyet/store/shards"
	"github.com/notyet/notyet/task"
	"github.com/notyet/notyet/test/lettertest"
	"github.com/notyet/notyet/test/mysqltest"
)

// stack is one set of servers, on which it uses names of its own.
type stack struct {
	t       *testing.T
	real    bool
	name    string // part of every topic, group, prefix and root
	log     *zap.Logger
	kafka   kafka.Config
	dsn     string
	redis   index.Config // where it is
	zk      []string
	intake  string
	reports string
	results string
	client  *kgo.Client
	store   *store.Store
	small   bool // Kafka and the database alone
	index   nearFuture
	second  *stack // the same on a second database, which has half of the targets; nil: there is one
	shard   int    // number of its database
}

// onStacks runs a test on the embedded servers, and beside it on real ones if the environment names them: with two databases, if it names
// a server for the second one.
func onStacks(t *testing.T, f func(t *testing.T, s *stack)) {
	onOneDatabase(t, func(t *testing.T, s *stack) {
		if s.real {
			s.shares()
		}
		f(t, s)
	})
}

// onOneDatabase is onStacks for tests that read the database themselves, or reconcile it.
func onOneDatabase(t *testing.T, f func(t *testing.T, s *stack)) {
	t.Run("embedded", func(t *testing.T) {
		t.Parallel()
		f(t, newStack(t, false))
	})
	t.Run("real", func(t *testing.T) {
		for _, name := range []string{"NOTYET_KAFKA_BROKERS", "NOTYET_MYSQL_DSN", "NOTYET_REDIS_ADDRS", "NOTYET_ZOOKEEPER_SERVERS"} {
			if os.Getenv(name) == "" {
				t.Skip(name + " is not set: run scripts/servers up and evaluate scripts/servers env")
			}
		}
		t.Parallel()
		f(t, newStack(t, true))
	})
}

// shares has half of the targets in a second database, if the environment names a server for it.
func (s *stack) shares() {
	second := os.Getenv("NOTYET_TEST_SECOND_DSN")
	if second == "" {
		return
	}
	ctx := s.t.Context()
	s.with(mysqltest.FreshOn(s.t, second))
	require.NoError(s.t, s.second.store.Migrate(ctx, usualSlots))
	home, err := s.store.Installation(ctx)
	require.NoError(s.t, err)
	stand, err := shards.New(s.store).Stand(ctx)
	require.NoError(s.t, err)
	require.NoError(s.t, shards.New(s.second.store).Join(ctx, 1, home, stand))
	_, err = s.shards().Move(ctx, shardmap.Rule{N: 1, Pattern: "*", Part: 2, Parts: 2, Former: 0, Shard: 1, Token: s.name})
	require.NoError(s.t, err)
	require.NoError(s.t, s.shards().FollowAtRest(ctx))
}

// with opens a second database.
func (s *stack) with(dsn string) {
	second := *s
	second.shard, second.dsn = 1, dsn
	var err error
	second.store, err = store.Open(s.t.Context(), store.Config{DSN: mysqltest.Patient(s.t, dsn)}, s.log)
	require.NoError(s.t, err)
	s.t.Cleanup(func() { _ = second.store.Close() })
	s.second = &second
}

func (s *stack) databases() []*stack {
	if s.second == nil {
		return []*stack{s}
	}
	return []*stack{s, s.second}
}

func (s *stack) shards() shards.Databases {
	all := shards.Databases{}
	for _, d := range s.databases() {
		all[d.shard] = shards.New(d.store)
	}
	return all
}

// own is the name of what the stages for its database have for themselves.
func (s *stack) own() string {
	if s.shard == 0 {
		return s.name
	}
	return fmt.Sprintf("%s.%d", s.name, s.shard)
}

// view finds a task, in whichever database it is.
func (s *stack) view(topic, id string) (v look.View, err error) {
	for _, d := range s.databases() {
		if v, err = look.New(d.store).Get(s.t.Context(), topic, id); err == nil {
			return v, nil
		}
	}
	return v, err
}

// lettersOf reads the dead letters of all databases, in the order in which they came to be.
func (s *stack) lettersOf(f letters.Filter) (all []task.DeadLetter) {
	s.t.Helper()
	for _, d := range s.databases() {
		more, err := lettertest.All(s.t.Context(), letters.New(d.store), f)
		require.NoError(s.t, err)
		all = append(all, more...)
	}
	slices.SortStableFunc(all, func(a, b task.DeadLetter) int { return cmp.Compare(a.DiedAt, b.DiedAt) })
	return all
}

// onlyLong skips a test that make test leaves to make test-long. make test-cluster, with several brokers, runs it too.
func onlyLong(t *testing.T, why string) {
	t.Helper()
	if os.Getenv("NOTYET_LONG") == "" && !strings.Contains(os.Getenv("NOTYET_KAFKA_BROKERS"), ",") {
		t.Skip("NOTYET_LONG=1 runs it: " + why)
	}
}

func newStack(t *testing.T, real bool) *stack { return newStackOf(t, real, 8) }

// newStackOf creates notyet's own topics with so many partitions.
func newStackOf(t *testing.T, real bool, partitions int32) *stack {
	return newStackIn(t, real, false, partitions, usualSlots)
}

const usualSlots = 16

func newStackIn(t *testing.T, real, small bool, partitions int32, slots int) *stack {
	return newStackBeside(t, own{}, real, small, partitions, slots)
}

// own are servers that a test has started for itself; "": none.
type own struct{ broker, dsn string }

// newStackBeside takes the test's own servers in place of others.
func newStackBeside(t *testing.T, own own, real, small bool, partitions int32, slots int) *stack {
	var random [4]byte
	_, err := rand.Read(random[:])
	require.NoError(t, err)
	s := &stack{t: t, real: real, small: small, name: "e2e" + hex.EncodeToString(random[:]), log: logger(t)}
	s.intake, s.reports, s.results = s.name+".intake", s.name+".reports", s.name+".results"
	if real {
		s.kafka.Brokers = strings.Split(os.Getenv("NOTYET_KAFKA_BROKERS"), ",")
		s.redis = index.Config{
			Addrs:   strings.Split(os.Getenv("NOTYET_REDIS_ADDRS"), ","),
			Cluster: os.Getenv("NOTYET_REDIS_CLUSTER") == "true", MasterName: os.Getenv("NOTYET_REDIS_MASTER"),
		}
		s.zk = strings.Split(os.Getenv("NOTYET_ZOOKEEPER_SERVERS"), ",")
		if s.dsn = own.dsn; s.dsn == "" {
			s.dsn = mysqltest.Fresh(t)
		}
	} else {
		broker := own.broker
		if broker == "" {
			k, err := embedded.StartKafka(embedded.Config{Addr: "127.0.0.1:0"}, s.log)
			require.NoError(t, err)
			t.Cleanup(k.Close)
			broker = k.Addr()
		}
		r, err := embedded.StartRedis()
		require.NoError(t, err)
		t.Cleanup(r.Close)
		s.kafka.Brokers, s.redis.Addrs = strings.Split(broker, ","), []string{r.Addr()}
		s.dsn = "sqlite:" + t.TempDir() + "/notyet.db"
	}
	s.client, err = kafka.NewProducer(s.kafka, s.log)
	require.NoError(t, err)
	t.Cleanup(func() {
		s.deleteTopics()
		s.client.Close()
	})
	s.judging(partitions, s.intake, s.reports, s.results)
	if small {
		s.judging(1, s.wakes())
	}
	ctx := t.Context()
	s.store, err = store.Open(ctx, store.Config{DSN: mysqltest.Patient(t, s.dsn)}, s.log)
	require.NoError(t, err)
	t.Cleanup(func() { _ = s.store.Close() })
	require.NoError(t, s.store.Migrate(ctx, slots))
	s.index = s.newIndex()
	return s
}

// logger keeps warnings and errors, and shows the last of them if the test fails;
// NOTYET_TEST_LOG=debug keeps all.
func logger(t *testing.T) *zap.Logger {
	level := zapcore.WarnLevel
	if v := os.Getenv("NOTYET_TEST_LOG"); v != "" {
		require.NoError(t, level.Set(v))
	}
	file := filepath.Join(t.TempDir(), "test.log")
	cfg := zap.NewDevelopmentConfig()
	cfg.Level = zap.NewAtomicLevelAt(level)
	cfg.DisableStacktrace = true
	cfg.OutputPaths, cfg.ErrorOutputPaths = []string{file}, []string{file}
	log, err := cfg.Build()
	require.NoError(t, err)
	t.Cleanup(func() { showLog(t, file) })
	return log
}

// showLog shows the end of a log of a test that has failed.
func showLog(t *testing.T, file string) {
	if t.Failed() {
		text, _ := os.ReadFile(file)
		t.Logf("--- %s\n%s", filepath.Base(file), tail(text, 4000))
	}
}

// topics creates topics as Kafka makes them by default: records carry the sender's time, and the broker judges it.
func (s *stack) topics(partitions int32, names ...string) {
	s.topicsOf("CreateTime", partitions, names...)
}

// judging creates topics whose records carry the broker's arrival time, by which a test judges how late they came.
func (s *stack) judging(partitions int32, names ...string) {
	s.topicsOf("LogAppendTime", partitions, names...)
}

func (s *stack) topicsOf(timestamps string, partitions int32, names ...string) {
	var specs []kafka.TopicSpec
	for _, n := range names {
		specs = append(specs, kafka.TopicSpec{Name: n, Partitions: partitions, Configs: map[string]string{"message.timestamp.type": timestamps}})
	}
	_, err := kafka.EnsureTopics(s.t.Context(), s.client, specs)
	require.NoError(s.t, err)
	// A busy broker may hear of a new topic seconds after the controller has made it. Until then the topic is missing.
	require.Eventually(s.t, func() bool {
		there, err := kafka.TopicIDs(s.t.Context(), s.client, names...)
		return err == nil && len(there) == len(names)
	}, time.Minute, 20*time.Millisecond)
}

// deleteTopics deletes every topic with the stack's name, because a broker with the topics of many
// runs starts slowly.
func (s *stack) deleteTopics() {
	if !s.real {
		return
	}
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	admin := kadm.NewClient(s.client)
	found, err := admin.ListTopics(ctx)
	require.NoError(s.t, err)
	var ours []string
	for _, topic := range found.Names() {
		if strings.HasPrefix(topic, s.name) {
			ours = append(ours, topic)
		}
	}
	deleted, err := admin.DeleteTopics(ctx, ours...)
	require.NoError(s.t, err)
	require.NoError(s.t, deleted.Error())
}

// nearFuture is the index, of either kind.
type nearFuture interface {
	scanner.Index
	dispatcher.Index
	deadletter.Index
	Close()
}

func (s *stack) wakes() string { return s.name + ".wakes" }

func (s *stack) newIndex() nearFuture {
	if s.small {
		ix := index.NewDatabase(s.store, s.kafka, s.wakes(), "", s.log)
		s.t.Cleanup(ix.Close)
		return ix
	}
	id, err := s.store.Installation(s.t.Context())
	require.NoError(s.t, err)
	cfg := s.redis
	cfg.Prefix, cfg.Installation = s.name, id
	ix, err := index.New(cfg, s.log)
	require.NoError(s.t, err)
	s.t.Cleanup(ix.Close)
	return ix
}

// process is a stage that runs until it is stopped.
type process struct {
	stop context.CancelFunc
	done chan error
}

func (s *stack) start(runs ...func(context.Context) error) *process {
	ctx, cancel := context.WithCancel(context.Background())
	p := &process{stop: cancel, done: make(chan error, 1)}
	all, ctx := errgroup.WithContext(ctx)
	for _, run := range runs {
		all.Go(func() error { return run(ctx) })
	}
	go func() { p.done <- all.Wait() }()
	s.t.Cleanup(func() { p.shutdown(s.t) })
	return p
}

func (p *process) shutdown(t *testing.T) {
	if p.stop == nil {
		return
	}
	p.stop()
	p.stop = nil
	select {
	case err := <-p.done:
		require.NoError(t, err)
	case <-time.After(2 * time.Minute):
		t.Error("a stage did not stop within two minutes")
	}
}

func (s *stack) scannerDeps() scanner.Deps {
	return scanner.Deps{Kafka: s.kafka, Store: s.store, Index: s.newIndex(), Metrics: prometheus.NewRegistry(), Log: s.log}
}

func (s *stack) scanner() *process {
	return s.scannerWith(scanner.Config{Intake: []string{s.intake}})
}

// scannerWith starts a scanner for each database.
func (s *stack) scannerWith(cfg scanner.Config) *process {
	var runs []func(context.Context) error
	for _, d := range s.databases() {
		cfg.Group, cfg.Reports, cfg.Results = d.own(), s.reports, s.results
		cfg.Shards, cfg.Shard, cfg.Databases = s.second != nil, d.shard, s.shards
		sc, err := scanner.New(d.scannerDeps(), cfg)
		require.NoError(s.t, err)
		runs = append(runs, sc.Run)
	}
	return s.start(runs...)
}

func (s *stack) dispatcher(id string) *process {
	return s.dispatcherWith(dispatcher.Config{MemberID: id, UndeliverableAfter: 5 * time.Second})
}

// dispatcherWith starts a dispatcher for each database.
func (s *stack) dispatcherWith(cfg dispatcher.Config) *process {
	var runs []func(context.Context) error
	for _, d := range s.databases() {
		runs = append(runs, d.oneDispatcher(cfg))
	}
	return s.start(runs...)
}

func (s *stack) oneDispatcher(cfg dispatcher.Config) func(context.Context) error {
	id := cfg.MemberID
	cfg.Results, cfg.Group, cfg.Read = s.results, s.own(), []string{s.intake, s.reports}
	sent, err := sendlog.Open(s.t.TempDir(), sendlog.Config{Now: s.store.Clock().Now}, s.log)
	require.NoError(s.t, err)
	members := s.member(election.Config{MemberID: id, Can: store.Can(), Required: s.store.Required})
	d, err := dispatcher.New(dispatcher.Deps{Kafka: s.kafka, Store: s.store, Index: s.newIndex(), Members: members, SendLog: sent, Metrics: prometheus.NewRegistry(), Log: s.log}, cfg)
	require.NoError(s.t, err)
	return func(ctx context.Context) error {
		defer func() { _ = sent.Close() }()
		return d.Run(ctx)
	}
}

// member is one of the election. On the embedded servers, without ZooKeeper, there is no other one.
func (s *stack) member(cfg election.Config) election.Source {
	cfg.Slots = s.store.SlotCount
	epochs := intake.New(s.store).Line()
	var m *election.Member
	var err error
	switch {
	case s.small:
		roll := s.store.Roll()
		s.t.Cleanup(roll.Close)
		m, err = election.NewDatabase(cfg, roll, epochs, s.log)
	case len(s.zk) > 0:
		cfg.Servers, cfg.Root = s.zk, "/"+s.own()
		m, err = election.NewZooKeeper(cfg, epochs, s.log)
	default:
		return election.NewLocal(cfg.MemberID, cfg.Slots, epochs)
	}
	require.NoError(s.t, err)
	return m
}

// reader consumes topics from their beginning.
func (s *stack) reader(topics []string, opts ...kgo.Opt) *kgo.Client {
	opts = append([]kgo.Opt{kgo.ConsumeTopics(topics...), kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()), kgo.FetchMaxWait(100 * time.Millisecond)}, opts...)
	c, err := kafka.New(s.kafka, s.log, opts...)
	require.NoError(s.t, err)
	s.t.Cleanup(c.Close)
	return c
}

// read polls until done returns true, or fails the test after bound.
func (s *stack) read(c *kgo.Client, bound time.Duration, done func(*kgo.Record) bool) {
	ctx, cancel := context.WithTimeout(s.t.Context(), bound)
	defer cancel()
	for finished := false; !finished; {
		f := c.PollFetches(ctx)
		if ctx.Err() != nil {
			require.Fail(s.t, "records are missing", fmt.Sprintf("after %v", bound))
		}
		f.EachRecord(func(r *kgo.Record) { finished = done(r) || finished })
	}
}
