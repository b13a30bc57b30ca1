package scanner

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"os"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"
	"go.uber.org/zap"

	"github.com/notyet/notyet/internal/defaults"
	"github.com/notyet/notyet/internal/kafka"
	"github.com/notyet/notyet/store"
	"github.com/notyet/notyet/store/look"
)

// cutDatabase is the database as one process reaches it, until it is cut off.
type cutDatabase struct {
	real driver.Driver
	dsn  string
	cut  atomic.Bool
	read atomic.Bool // it may read
}

var errCutOff = errors.New("this process does not reach the database")

func (d *cutDatabase) Driver() driver.Driver { return d.real }

func (d *cutDatabase) err() error {
	if d.cut.Load() {
		return errCutOff
	}
	return nil
}

func (d *cutDatabase) Connect(context.Context) (driver.Conn, error) {
	if err := d.err(); err != nil {
		return nil, err
	}
	c, err := d.real.Open(d.dsn)
	if err != nil {
		return nil, err
	}
	return cutConn{c.(realConn), d}, nil
}

// realConn is what database/sql uses of a connection.
type realConn interface {
	driver.Conn
	driver.ConnBeginTx
	driver.ExecerContext
	driver.QueryerContext
}

type cutConn struct {
	realConn
	db *cutDatabase
}

func (c cutConn) Ping(context.Context) error { return c.db.err() }

func (c cutConn) BeginTx(ctx context.Context, opts driver.TxOptions) (driver.Tx, error) {
	if err := c.db.err(); err != nil {
		return nil, err
	}
	if c.db.read.Load() && !opts.ReadOnly {
		return nil, errCutOff
	}
	return c.realConn.BeginTx(ctx, opts)
}

func (c cutConn) ExecContext(ctx context.Context, query string, args []driver.NamedValue) (driver.Result, error) {
	if err := c.db.err(); err != nil {
		return nil, err
	}
	return c.realConn.ExecContext(ctx, query, args)
}

func (c cutConn) QueryContext(ctx context.Context, query string, args []driver.NamedValue) (driver.Rows, error) {
	if err := c.db.err(); err != nil {
		return nil, err
	}
	return c.realConn.QueryContext(ctx, query, args)
}

// hasty is FailingAfter in tests on a broker.
const hasty = 400 * time.Millisecond

// cuttable starts a scanner that can be cut off from the database.
func (f *fixture) cuttable(cfg Config) (*running, *cutDatabase) {
	f.Helper()
	plain, err := sql.Open("sqlite", f.path)
	require.NoError(f, err)
	defer func() { require.NoError(f, plain.Close()) }()
	db := &cutDatabase{real: plain.Driver(), dsn: f.path + "?_txlock=immediate&_pragma=journal_mode(WAL)&_pragma=busy_timeout(10000)"}
	st, err := store.Open(f.Context(), store.Config{Connector: db}, zap.NewNop())
	require.NoError(f, err)
	f.Cleanup(func() { _ = st.Close() })
	ctx, cancel := context.WithCancel(context.Background())
	r := &running{Scanner: f.scanner(st, cfg), f: f, stop: cancel, done: make(chan error, 1)}
	r.health.after = hasty
	go func() { r.done <- r.Run(ctx) }()
	f.Cleanup(r.end)
	return r, db
}

// reads are the partitions that a scanner reads.
func (s *Scanner) reads() map[partitionKey]bool {
	s.parts.mu.Lock()
	defer s.parts.mu.Unlock()
	out := map[partitionKey]bool{}
	for key := range s.parts.readings {
		out[key] = true
	}
	return out
}

// share says that the scanners read all partitions of the intake, that each one reads some, and no two the same.
func share(scanners ...*running) func() bool {
	return func() bool {
		all, n := map[partitionKey]bool{}, 0
		for _, s := range scanners {
			mine := s.reads()
			if len(mine) == 0 {
				return false
			}
			n += len(mine)
			maps.Copy(all, mine)
		}
		for part := range int32(intakeParts) {
			if !all[partitionKey{scanners[0].cfg.Intake[0], part}] {
				return false
			}
		}
		return n == len(all)
	}
}

func TestAScannerThatAloneLosesTheDatabaseGivesItsPartitionsToOthers(t *testing.T) {
	for name, kafka := range brokers(t) {
		t.Run(name, func(t *testing.T) {
			f, cfg := kafka(t)
			a, cut := f.cuttable(cfg)
			f.eventually("one has everything", share(a))
			b, _ := f.cuttable(cfg)
			f.eventually("both have a share", share(a, b))

			cut.cut.Store(true)
			f.eventually("the other has everything", func() bool { return share(b)() && len(a.reads()) == 0 })
			f.askAll(cfg, "cut")
			f.storedAll("cut")

			cut.cut.Store(false)
			f.eventually("both have a share again", share(a, b))
			f.askAll(cfg, "whole")
			f.storedAll("whole")
		})
	}
}

// A user without the right to write, say: the database answers.
func TestAScannerWhoseWritesFailGivesItsPartitionsToOthers(t *testing.T) {
	f := newFixture(t)
	a, cut := f.cuttable(Config{})
	f.eventually("one has everything", share(a))
	b, _ := f.cuttable(Config{})
	f.eventually("both have a share", share(a, b))
	f.askAll(Config{}, "before")
	f.storedAll("before")
	cut.read.Store(true)
	f.askAll(Config{}, "cut")
	f.storedAll("cut")
	require.Empty(t, a.reads())
	cut.read.Store(false)
	f.eventually("both have a share again", share(a, b))
}

func TestADatabaseThatIsAwayForAllMovesNoPartition(t *testing.T) {
	f := newFixture(t)
	var scanners []*running
	var dbs []*cutDatabase
	for range 3 {
		s, db := f.cuttable(Config{})
		scanners, dbs = append(scanners, s), append(dbs, db)
	}
	f.eventually("all have a share of intake and reports, and nothing moves", func() bool {
		n := 0
		for _, s := range scanners {
			n += len(s.reads())
		}
		return n == 2*intakeParts+1 && share(scanners...)() // one of cancels
	})
	had := make([]map[partitionKey]bool, len(scanners))
	for i, s := range scanners {
		had[i] = s.reads()
		dbs[i].cut.Store(true)
	}
	f.askAll(Config{}, "away")
	said := func(what ability) func() bool {
		return func() bool {
			return !slices.ContainsFunc(scanners, func(s *running) bool {
				s.health.mu.Lock()
				defer s.health.mu.Unlock()
				return s.health.told != what
			})
		}
	}
	f.eventually("all say that they fail", said(fails))
	keep := func() {
		for i, s := range scanners {
			require.Equal(t, had[i], s.reads())
			s.health.mu.Lock()
			require.Zero(t, s.health.until, "no partition was taken from it")
			s.health.mu.Unlock()
		}
	}
	keep()
	for _, db := range dbs {
		db.cut.Store(false)
	}
	f.storedAll("away")
	f.eventually("all say that they work", said(works))
	keep()
}

func TestAScannerThatIsAloneKeepsItsPartitions(t *testing.T) {
	f := newFixture(t)
	a, cut := f.cuttable(Config{})
	f.eventually("it has everything", share(a))
	cut.cut.Store(true)
	f.eventually("it says that it fails", func() bool {
		a.health.mu.Lock()
		defer a.health.mu.Unlock()
		return a.health.told == fails
	})
	require.True(t, share(a)())
	f.askAll(Config{}, "away")
	cut.cut.Store(false)
	f.storedAll("away")
}

// askAll asks for a task by way of each partition of the intake.
func (f *fixture) askAll(cfg Config, prefix string) {
	f.Helper()
	for part := range int32(intakeParts) {
		r := ask(fmt.Sprint(prefix, part), part)
		r.Topic = cfg.withDefaults().Intake[0]
		f.publish(r)
	}
}

// storedAll waits until all tasks of askAll are stored.
func (f *fixture) storedAll(prefix string) {
	f.Helper()
	for part := range intakeParts {
		f.eventually(fmt.Sprintf("%s%d is stored", prefix, part), func() bool {
			_, err := look.New(f.store).Get(f.Context(), "orders", fmt.Sprint(prefix, part))
			return err == nil
		})
	}
}

// brokers are kfake and, when NOTYET_KAFKA_BROKERS names it, a real Kafka, with topics and a group of the test's own.
func brokers(t *testing.T) map[string]func(*testing.T) (*fixture, Config) {
	all := map[string]func(*testing.T) (*fixture, Config){"kfake": func(t *testing.T) (*fixture, Config) { return newFixture(t), Config{} }}
	if addrs := os.Getenv("NOTYET_KAFKA_BROKERS"); addrs != "" {
		all["kafka"] = func(t *testing.T) (*fixture, Config) {
			f := newFixture(t)
			f.kafka = kafka.Config{Brokers: strings.Split(addrs, ",")}
			var err error
			f.client, err = kafka.NewProducer(f.kafka, zap.NewNop(), kgo.RecordPartitioner(kgo.ManualPartitioner()))
			require.NoError(t, err)
			t.Cleanup(f.client.Close)
			name := fmt.Sprintf("test-%x-", rand.Uint64())
			cfg := Config{Group: name + "scanners", Intake: []string{name + "intake"}, Reports: name + "reports", Results: name + "results"}
			topics := map[string]int32{cfg.Intake[0]: intakeParts, cfg.Reports: 1, cfg.Results: 1}
			admin := kadm.NewClient(f.client)
			for topic, parts := range topics {
				_, err := kafka.EnsureTopics(t.Context(), f.client, []kafka.TopicSpec{{Name: topic, Partitions: parts, Replication: 1}})
				require.NoError(t, err)
			}
			t.Cleanup(func() {
				_, err := admin.DeleteTopics(context.Background(), slices.Collect(maps.Keys(topics))...)
				require.NoError(t, err)
			})
			return f, cfg
		}
	}
	return all
}

// say reports once a second for so long, and returns after how long the group is first asked to join again; -1: it is not.
func say(h *health, err error, lasts time.Duration) time.Duration {
	began := time.Now()
	for time.Since(began) <= lasts {
		if h.report(err) {
			return time.Since(began)
		}
		time.Sleep(time.Second)
	}
	return -1
}

func TestWhenTheGroupHearsOfAScanner(t *testing.T) {
	const s = time.Second
	after := defaults.FailingAfter
	at := func(t *testing.T, f func(h *health)) {
		synctest.Test(t, func(*testing.T) { f(newHealth(nil, nil, zap.NewNop())) })
	}
	at(t, func(h *health) { // it fails, and comes back
		require.Equal(t, time.Duration(-1), say(h, nil, time.Hour), "nothing is said of one that works")
		require.Equal(t, works, h.join())
		require.Equal(t, time.Duration(-1), say(h, errCutOff, 9*s))
		require.Equal(t, time.Duration(-1), say(h, nil, time.Minute), "it was not for long")
		require.Equal(t, 2*after, say(h, errCutOff, time.Minute))
		require.Equal(t, fails, h.join())
		h.revoked()
		require.Equal(t, time.Duration(-1), say(h, errCutOff, time.Hour), "it is said once")
		require.Equal(t, after, say(h, nil, time.Hour), "the shortest pause is over by then")
		require.Equal(t, works, h.join())
	})
	at(t, func(h *health) { // the others have it join
		say(h, errCutOff, 2*after-2*s)
		require.Equal(t, falters, h.join())
		require.Equal(t, after, say(h, nil, time.Hour), "one that fails keeps its partitions until another one says that it works")
		require.Equal(t, works, h.join())
		say(h, errCutOff, 2*after)
		require.Equal(t, fails, h.join())
		require.Equal(t, after, say(h, nil, time.Hour), "no partition was taken from it, so it does not rest")
	})
	at(t, func(h *health) { // pauses grow while it fails each time
		var pauses []time.Duration
		again := func() {
			say(h, errCutOff, time.Minute)
			require.Equal(t, fails, h.join())
			h.revoked()
			require.Equal(t, time.Duration(-1), say(h, nil, after-s))
			require.Equal(t, rests, h.join())
			h.report(errCutOff)
			require.Equal(t, fails, h.join(), "it rests, and has failed before")
			require.Equal(t, time.Duration(-1), say(h, nil, after-s))
			pauses = append(pauses, 2*after+say(h, nil, time.Hour))
			require.Equal(t, works, h.join())
		}
		for range 7 {
			again()
		}
		require.Equal(t, []time.Duration{10 * s, 20 * s, 40 * s, 80 * s, 160 * s, 300 * s, 300 * s}, pauses)
		say(h, nil, rested)
		again()
		require.Equal(t, 10*s, pauses[7], "it has worked for long")
	})
}
