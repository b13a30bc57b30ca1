package scanner

import (
	"fmt"
	"os"
	"path/filepath"
	"sync/atomic"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"
	"go.uber.org/zap"
	"go.uber.org/zap/zapcore"
	"go.uber.org/zap/zaptest/observer"

	"github.com/notyet/notyet/internal/embedded"
	"github.com/notyet/notyet/internal/kafka"
	"github.com/notyet/notyet/schemas"
	"github.com/notyet/notyet/store/intake"
)

// folders is a fixture whose broker keeps its log in a folder that can be put back.
type folders struct {
	*fixture
	dir    string
	addr   string
	broker *embedded.Kafka
}

func newFolders(t *testing.T) *folders {
	f := &folders{fixture: newFixture(t), dir: t.TempDir(), addr: "127.0.0.1:0"}
	f.up()
	f.kafka = kafka.Config{Brokers: []string{f.addr}}
	t.Cleanup(func() { f.broker.Close() })
	var err error
	f.client, err = kafka.NewProducer(f.kafka, zap.NewNop(), kgo.RecordPartitioner(kgo.ManualPartitioner()))
	require.NoError(t, err)
	t.Cleanup(f.client.Close)
	return f
}

func (f *folders) data() string { return filepath.Join(f.dir, "now") }

func (f *folders) up() {
	f.Helper()
	var topics []embedded.Topic
	for _, name := range []string{schemas.TopicIntake, schemas.TopicReports, schemas.TopicResults, schemas.TopicCancels} {
		topics = append(topics, embedded.Topic{Name: name, Partitions: 1})
	}
	var err error
	f.broker, err = embedded.StartKafka(embedded.Config{Addr: f.addr, DataDir: f.data(), Topics: topics}, zap.NewNop())
	require.NoError(f, err)
	f.addr = f.broker.Addr()
}

// snapshot copies the broker's folder while it is down.
func (f *folders) snapshot() {
	f.Helper()
	f.broker.Close()
	require.NoError(f, os.CopyFS(filepath.Join(f.dir, "copy"), os.DirFS(f.data())))
	f.up()
}

func (f *folders) restore() {
	f.Helper()
	f.broker.Close()
	require.NoError(f, os.RemoveAll(f.data()))
	require.NoError(f, os.Rename(filepath.Join(f.dir, "copy"), f.data()))
	f.up()
}

func (f *folders) next(topic string) (out intake.Source) {
	f.Helper()
	all, err := intake.New(f.store).Sources(f.Context())
	require.NoError(f, err)
	for _, src := range intake.InUse(all) {
		if src.Topic == topic {
			out = src
		}
	}
	return out
}

func some(topic, prefix string, n int) []*kgo.Record {
	out := make([]*kgo.Record, n)
	for i := range out {
		id := fmt.Sprint(prefix, i)
		if out[i] = ask(id, 0); topic == schemas.TopicReports {
			out[i] = record(topic, 0, schemas.HeaderTopic, "orders", schemas.HeaderID, id, schemas.HeaderAttempt, "1", schemas.HeaderStatus, "ok")
		}
	}
	return out
}

// A broker that comes back from a copy of its folder counts its leaders as before. What it then takes has offsets that are stored
// already, and is not passed over as stored.
func TestALogFromACopyHaltsItsPartition(t *testing.T) {
	for _, topic := range []string{schemas.TopicIntake, schemas.TopicReports} {
		for _, running := range []bool{false, true} {
			t.Run(fmt.Sprintf("%s, running %v", topic, running), func(t *testing.T) {
				f := newFolders(t)
				s := f.start(f.store, Config{})
				f.publish(some(topic, "copied", 30)...)
				f.eventually("stored", func() bool { return f.next(topic).Next == 30 })
				f.snapshot()
				f.publish(some(topic, "lost", 20)...)
				f.eventually("stored", func() bool { return f.next(topic).Next == 50 })
				require.EqualValues(t, 49, f.next(topic).Proof.At)
				if !running {
					s.end()
				}
				f.restore()
				f.publish(some(topic, "new", 30)...)
				if !running {
					s = f.start(f.open(), Config{})
				}
				f.eventually("it says so", func() bool { return s.parts.halted.ready() != nil })
				require.ErrorContains(t, s.Ready(t.Context()), topic+"/0 is not read any further")
				require.EqualValues(t, 50, f.next(topic).Next)
				s.checker.check(t.Context())
				require.Error(t, s.parts.halted.ready(), "it stands until an operator decides")
				f.publish(some(topic, "more", 5)...)
				s.end()

				s = f.start(f.open(), Config{})
				f.eventually("the next scanner says so too", func() bool { return s.parts.halted.ready() != nil })
				require.EqualValues(t, 50, f.next(topic).Next)
				o := &Operator{Kafka: f.client, Store: f.store, Topics: []string{schemas.TopicIntake, schemas.TopicReports}}
				stands, err := o.partition(t.Context(), topic, 0)
				require.NoError(t, err)
				require.Equal(t, StateDiverged, stands.State)
				require.EqualValues(t, 30, *stands.SameUpTo)
				_, err = o.Restart(t.Context(), topic, 0, nil)
				require.NoError(t, err)
				f.eventually("all is stored", func() bool { return f.next(topic).Next == 65 })
				if topic == schemas.TopicIntake {
					require.Equal(t, 30+20+30+5, f.tasks())
				}
				f.eventually("it is ready", func() bool { return s.parts.halted.ready() == nil })
			})
		}
	}
}

// watched is a scanner that notes each of its partitions that halts.
func (f *fixture) watched() (*running, *observer.ObservedLogs) {
	core, logs := observer.New(zapcore.WarnLevel)
	s, err := New(Deps{Kafka: f.kafka, Store: f.store, Index: f.index, Metrics: prometheus.NewRegistry(), Log: zap.New(core)}, Config{})
	require.NoError(f, err)
	return f.run(s), logs
}

func neverHalted(t *testing.T, logs *observer.ObservedLogs) {
	t.Helper()
	for _, line := range logs.All() {
		require.NotContains(t, line.Message, "nothing more is read")
	}
}

// A broker that comes back as it was halts nobody, whoever is at work.
func TestALogThatComesBackWholeIsReadOn(t *testing.T) {
	f := newFolders(t)
	s, logs := f.watched()
	for i := range 3 {
		f.publish(some(schemas.TopicIntake, fmt.Sprint("a", i), 5)...)
		f.eventually("stored", func() bool { return f.next(schemas.TopicIntake).Next == int64(5*i+5) })
		f.broker.Close()
		f.up()
	}
	s.checker.check(t.Context())
	require.NoError(t, s.parts.halted.ready())
	neverHalted(t, logs)
}

// Of what retention has deleted, of what a scanner of an older version stored, and of a partition that an operator moved, there is
// no proof, or an earlier one. None of these is another log.
func TestALogWithoutItsProofIsReadOn(t *testing.T) {
	for name, change := range map[string]func(*fixture){
		"deleted by retention": func(f *fixture) { require.NoError(f, f.cluster.DeleteRecords(schemas.TopicIntake, 0, 8)) },
		"none was noted":       func(f *fixture) { f.sql("UPDATE sources SET proof_at = -1, proof_time = 0, proof_sum = 0") },
		"an earlier one": func(f *fixture) {
			p := f.sourceOf(0).Proof
			f.publish(asksIn("b", 4, 0)...)
			s := f.start(f.store, Config{})
			f.eventually("stored", func() bool { return f.sourceOf(0).Next == 12 })
			s.end()
			f.sql(fmt.Sprintf("UPDATE sources SET proof_at = %d, proof_time = %d, proof_sum = %d", p.At, p.Time, p.Sum))
		},
		"an earlier one, deleted": func(f *fixture) {
			f.sql("UPDATE sources SET proof_at = 2, proof_sum = 5")
			require.NoError(f, f.cluster.DeleteRecords(schemas.TopicIntake, 0, 4))
		},
	} {
		t.Run(name, func(t *testing.T) {
			f := newFixture(t)
			s := f.start(f.store, Config{})
			f.publish(asksIn("a", 8, 0)...)
			f.eventually("stored", func() bool { return f.sourceOf(0).Next == 8 })
			s.end()
			change(f)
			next := f.sourceOf(0).Next
			s, logs := f.watched()
			f.publish(asksIn("c", 3, 0)...)
			f.eventually("stored", func() bool { return f.sourceOf(0).Next == next+3 })
			require.Equal(t, next+2, f.sourceOf(0).Proof.At)
			s.checker.check(t.Context())
			neverHalted(t, logs)
		})
	}
}

// The marker of a transaction is a record too.
func TestAMarkerIsAProof(t *testing.T) {
	f := newFixture(t)
	s := f.start(f.store, Config{})
	c, err := kafka.NewProducer(f.kafka, zap.NewNop(), kgo.TransactionalID("tx"), kgo.RecordPartitioner(kgo.ManualPartitioner()))
	require.NoError(t, err)
	defer c.Close()
	for end, commit := range []kgo.TransactionEndTry{kgo.TryCommit, kgo.TryAbort} {
		require.NoError(t, c.BeginTransaction())
		require.NoError(t, c.ProduceSync(t.Context(), asksIn(fmt.Sprint("a", end), 2, 0)...).FirstErr())
		require.NoError(t, c.EndTransaction(t.Context(), commit))
		f.eventually("stored", func() bool { return f.sourceOf(0).Next == int64(3*end+3) })
		require.EqualValues(t, 3*end+2, f.sourceOf(0).Proof.At)
	}
	s.end()
	s, logs := f.watched()
	f.publish(asksIn("b", 2, 0)...)
	f.eventually("stored", func() bool { return f.sourceOf(0).Next == 8 })
	s.checker.check(t.Context())
	neverHalted(t, logs)
}

// While nobody says whether a log is the one that was stored, its partition waits, and no other does. It is not halted for that.
func TestALogThatCannotBeComparedWaits(t *testing.T) {
	f := newFixture(t)
	s := f.start(f.store, Config{})
	f.publish(append(asksIn("a", 4, 0), asksIn("b", 4, 1)...)...)
	f.eventually("stored", func() bool { return f.tasks() == 8 })
	s.end()
	var asked, answers atomic.Bool
	f.cluster.ControlKey(int16(kmsg.Fetch), func(r kmsg.Request) (kmsg.Response, error, bool) {
		f.cluster.KeepControl()
		req := r.(*kmsg.FetchRequest)
		if answers.Load() || req.MaxBytes != 1 || req.Topics[0].Partitions[0].Partition != 0 {
			return nil, nil, false
		}
		asked.Store(true)
		resp := req.ResponseKind().(*kmsg.FetchResponse)
		resp.ErrorCode = kerr.UnknownServerError.Code
		return resp, nil, true
	})
	_, logs := f.watched()
	f.publish(append(asksIn("c", 4, 0), asksIn("d", 4, 1)...)...)
	f.eventually("the other goes on", func() bool { return f.sourceOf(1).Next == 8 })
	f.eventually("it asks", asked.Load)
	require.EqualValues(t, 4, f.sourceOf(0).Next)
	answers.Store(true)
	f.eventually("it goes on", func() bool { return f.tasks() == 16 })
	neverHalted(t, logs)
}

// A comparison may take longer than a batch waits at first: the record's batch is large, say, or its broker slow.
func TestALogThatIsSlowToCompareIsReadOn(t *testing.T) {
	f := newFixture(t)
	s := f.start(f.store, Config{})
	f.publish(asksIn("a", 4, 0)...)
	f.eventually("stored", func() bool { return f.tasks() == 4 })
	s.end()
	f.cluster.ControlKey(int16(kmsg.Fetch), func(r kmsg.Request) (kmsg.Response, error, bool) {
		f.cluster.KeepControl()
		if r.(*kmsg.FetchRequest).MaxBytes == 1 {
			f.cluster.SleepControl(func() { time.Sleep(provePatience + time.Second) })
		}
		return nil, nil, false
	})
	_, logs := f.watched()
	f.publish(asksIn("b", 4, 0)...)
	f.eventually("it goes on", func() bool { return f.tasks() == 8 })
	neverHalted(t, logs)
}

func TestProofOf(t *testing.T) {
	r := func(change func(*kgo.Record)) intake.Proof {
		out := record("in", 0, "h", "1", "g", "2")
		out.Offset = 7
		change(out)
		return proofOf(out)
	}
	base := r(func(*kgo.Record) {})
	require.Equal(t, base, r(func(*kgo.Record) {}))
	for name, change := range map[string]func(*kgo.Record){
		"key":                func(r *kgo.Record) { r.Key = []byte("kez") },
		"no key":             func(r *kgo.Record) { r.Key = nil },
		"value":              func(r *kgo.Record) { r.Value = []byte("bodz") },
		"key into the value": func(r *kgo.Record) { r.Key, r.Value = []byte("keyb"), []byte("ody") },
		"order of headers":   func(r *kgo.Record) { r.Headers[0], r.Headers[1] = r.Headers[1], r.Headers[0] },
		"header":             func(r *kgo.Record) { r.Headers[1].Value = nil },
	} {
		require.NotEqual(t, base.Sum, r(change).Sum, name)
	}
	require.NotEqual(t, r(func(r *kgo.Record) { r.Value = nil }), r(func(r *kgo.Record) { r.Value = []byte{} }))
}
