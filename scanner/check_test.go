package scanner

import (
	"fmt"
	"slices"
	"sync/atomic"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/notyet/notyet/schemas"
	"github.com/notyet/notyet/store/intake"
)

// elect gives a partition another leader. All that is published from then on has the next leader epoch.
func (f *fixture) elect(partition int32) {
	f.Helper()
	require.NoError(f, f.cluster.MoveTopicPartition(schemas.TopicIntake, partition, f.cluster.LeaderFor(schemas.TopicIntake, partition)))
}

func (f *fixture) sourceOf(partition int32) intake.Source {
	f.Helper()
	all, err := intake.New(f.store).Sources(f.Context())
	require.NoError(f, err)
	for _, src := range intake.InUse(all) {
		if src.Topic == schemas.TopicIntake && src.Partition == partition {
			return src
		}
	}
	return intake.Source{}
}

func (f *fixture) tasks() int { return f.count("SELECT COUNT(*) FROM tasks") }

// loseRecords has the database know of more records than the log has: what is left of one that lost records.
func (f *fixture) loseRecords(partition int32, upTo int64) {
	f.sql(fmt.Sprintf("UPDATE sources SET next_offset = %d, epoch_to = %d WHERE part = %d", upTo, upTo, partition))
}

// haltedIn are the partitions that the metric names.
func haltedIn(m *metrics) (out []string) {
	reg := prometheus.NewRegistry()
	reg.MustRegister(m.halted)
	families, err := reg.Gather()
	if err != nil {
		panic(err)
	}
	for _, f := range families {
		for _, one := range f.GetMetric() {
			label := map[string]string{}
			for _, l := range one.GetLabel() {
				label[l.GetName()] = l.GetValue()
			}
			out = append(out, label["topic"]+"/"+label["partition"])
		}
	}
	return out
}

// A log that lost records gives their offsets to others. None of these may be taken for one that is stored, whether the log is
// still shorter than what is stored or has grown past it.
func TestALogThatLostRecordsHaltsItsPartition(t *testing.T) {
	for name, published := range map[string]int{"still shorter": 3, "grown past what is stored": 14} {
		t.Run(name, func(t *testing.T) {
			f := newFixture(t)
			first := f.start(f.store, Config{})
			f.publish(asksIn("a", 6, 0)...)
			f.eventually("stored", func() bool { return f.sourceOf(0).Next == 6 })
			require.Equal(t, intake.Epoch{Number: 0, From: 0, To: 6}, f.sourceOf(0).Epoch)
			first.end()
			f.loseRecords(0, 10)
			f.elect(0)
			f.publish(asksIn("b", published, 0)...)

			s := f.start(f.open(), Config{})
			f.publish(asksIn("c", 4, 1)...)
			f.eventually("the other partitions go on", func() bool { return f.sourceOf(1).Next == 4 })
			f.eventually("it says so", func() bool { return s.Ready(t.Context()) != nil })
			require.ErrorContains(t, s.Ready(t.Context()), "notyet.intake/0 is not read any further")
			require.ErrorContains(t, s.Ready(t.Context()), "the same up to 6")
			s.watcher.look(t.Context())
			require.Equal(t, []string{"notyet.intake/0"}, haltedIn(s.worker.metrics))
			require.Equal(t, 6+4, f.tasks())
			old := f.sourceOf(0)
			require.EqualValues(t, 10, old.Next, "nothing is passed")

			_, err := intake.New(f.store).Restart(t.Context(), old, 6)
			require.NoError(t, err)
			f.eventually("all is stored", func() bool { return f.tasks() == 6+4+published })
			f.eventually("it is ready", func() bool { return s.Ready(t.Context()) == nil })
			s.watcher.look(t.Context())
			require.Empty(t, haltedIn(s.worker.metrics))
			require.Contains(t, s.parts.ids(), old.ID, "somebody still looks after the pending events of what was stored before")
			require.EqualValues(t, 6+published, f.sourceOf(0).Next)
			s.end()
			later := f.start(f.open(), Config{})
			f.publish(asksIn("d", 1, 0)...)
			f.eventually("the next scanner goes on", func() bool { return f.tasks() == 6+4+published+1 })
			require.Contains(t, later.parts.ids(), old.ID, "and looks after them too")
		})
	}
}

// The leader changes while the scanner is at work, and the new one does not have all that the scanner has read.
func TestALogThatLosesRecordsWhileItIsRead(t *testing.T) {
	f := newFixture(t)
	s := f.start(f.store, Config{})
	f.publish(asksIn("a", 10, 0)...)
	f.eventually("stored", func() bool { return f.sourceOf(0).Next == 10 })
	f.cluster.ControlKey(int16(kmsg.OffsetForLeaderEpoch), func(r kmsg.Request) (kmsg.Response, error, bool) {
		f.cluster.KeepControl()
		req := r.(*kmsg.OffsetForLeaderEpochRequest)
		resp := req.ResponseKind().(*kmsg.OffsetForLeaderEpochResponse)
		for _, topic := range req.Topics {
			rt := kmsg.NewOffsetForLeaderEpochResponseTopic()
			rt.Topic = topic.Topic
			for _, part := range topic.Partitions {
				rp := kmsg.NewOffsetForLeaderEpochResponseTopicPartition()
				rp.Partition, rp.LeaderEpoch, rp.EndOffset = part.Partition, part.LeaderEpoch, 7
				rt.Partitions = append(rt.Partitions, rp)
			}
			resp.Topics = append(resp.Topics, rt)
		}
		return resp, nil, true
	})
	f.elect(0)
	f.publish(asksIn("b", 5, 0)...)
	f.eventually("it is halted", func() bool { return s.parts.halted.has(partitionKey{schemas.TopicIntake, 0}) })
	f.eventually("it knows where", func() bool { err := s.parts.halted.ready(); return err != nil && f.sourceOf(0).Next == 10 })
	require.Equal(t, 10, f.tasks())
}

// A false alarm costs a pause.
func TestAPartitionThatIsIntactIsReadOn(t *testing.T) {
	f := newFixture(t)
	s := f.start(f.store, Config{})
	f.publish(asksIn("a", 4, 0)...)
	f.eventually("stored", func() bool { return f.sourceOf(0).Next == 4 })
	s.checker.dataLost(&kgo.ErrDataLoss{Topic: schemas.TopicIntake, Partition: 0, ConsumedTo: 4, ResetTo: 0})
	require.ErrorContains(t, s.Ready(t.Context()), "not read any further")
	f.publish(asksIn("b", 4, 0)...)
	f.eventually("all is stored", func() bool { return f.tasks() == 8 })
	require.NoError(t, s.Ready(t.Context()))
}

// A leader that does not answer about its epochs keeps its partition, and nobody else's.
func TestALeaderThatDoesNotAnswerHoldsUpItsPartitionAlone(t *testing.T) {
	f := newFixture(t)
	s := f.start(f.store, Config{Workers: 1})
	f.publish(asksIn("a", 2, 0)...)
	f.publish(asksIn("b", 2, 1)...)
	f.eventually("stored", func() bool { return f.tasks() == 4 })
	var answers atomic.Bool
	f.cluster.ControlKey(int16(kmsg.OffsetForLeaderEpoch), func(r kmsg.Request) (kmsg.Response, error, bool) {
		f.cluster.KeepControl()
		req := r.(*kmsg.OffsetForLeaderEpochRequest)
		if answers.Load() || req.Topics[0].Partitions[0].CurrentLeaderEpoch >= 0 { // the consumer asks too, before it reads on
			return nil, nil, false
		}
		resp := req.ResponseKind().(*kmsg.OffsetForLeaderEpochResponse)
		for _, topic := range req.Topics {
			rt := kmsg.NewOffsetForLeaderEpochResponseTopic()
			rt.Topic = topic.Topic
			for _, part := range topic.Partitions {
				rp := kmsg.NewOffsetForLeaderEpochResponseTopicPartition()
				rp.Partition, rp.ErrorCode = part.Partition, kerr.ReplicaNotAvailable.Code
				rt.Partitions = append(rt.Partitions, rp)
			}
			resp.Topics = append(resp.Topics, rt)
		}
		return resp, nil, true
	})
	f.elect(0)
	f.publish(asksIn("c", 3, 0)...)
	f.eventually("it has been polled", func() bool { at, _, _ := s.parts.readTo(partitionKey{schemas.TopicIntake, 0}); return at != 2 })
	f.publish(asksIn("d", 3, 1)...)
	f.eventually("the other partition goes on", func() bool { return f.sourceOf(1).Next == 5 })
	require.EqualValues(t, 2, f.sourceOf(0).Next)
	require.ErrorContains(t, s.Ready(t.Context()), "notyet.intake/0 is not read any further, Kafka does not say")
	answers.Store(true)
	f.eventually("it is read on", func() bool { return f.sourceOf(0).Next == 5 && s.Ready(t.Context()) == nil })
	require.Equal(t, 10, f.tasks())
}

// Partitions without a leader, one stored before and one new, hold up none of those that are assigned with them, nor their comparisons.
func TestPartitionsWithoutALeaderHoldUpThemselvesAlone(t *testing.T) {
	f := newFixture(t)
	s := f.start(f.store, Config{})
	f.publish(asksIn("a", 2, 0)...)
	f.publish(asksIn("b", 2, 1)...)
	f.eventually("stored", func() bool { return f.tasks() == 4 })
	s.end()
	f.publish(asksIn("c", 5, 3)...)
	require.NoError(t, f.cluster.DeleteRecords(schemas.TopicIntake, 3, 2))
	leaderless := f.cluster.Fault(kfake.Fault{Keys: []kmsg.Key{kmsg.Metadata}, Topic: schemas.TopicIntake, Partitions: []int32{0, 3}, Err: kerr.LeaderNotAvailable, Count: -1})

	s = f.start(f.store, Config{})
	f.publish(asksIn("d", 1, 1)...)
	f.eventually("the others are read", func() bool { return f.sourceOf(1).Next == 3 })
	f.elect(1)
	f.publish(asksIn("e", 1, 1)...)
	f.eventually("a new leader's log is compared", func() bool { return f.sourceOf(1).Next == 4 })
	require.NoError(t, s.Ready(t.Context()))
	f.eventually("its lag is known", func() bool {
		s.lag.look(t.Context())
		return gauged(s.lag.gauge.WithLabelValues(schemas.TopicIntake, "1")) == 0
	})
	stands, err := f.operator().Partitions(t.Context())
	require.NoError(t, err)
	require.Equal(t, StateUnreachable, stands[slices.IndexFunc(stands, func(p Partition) bool { return p.Topic == schemas.TopicIntake && p.Partition == 0 })].State)

	leaderless.Remove()
	f.publish(asksIn("f", 2, 0)...)
	f.eventually("they are read once they have one", func() bool { return f.tasks() == 4+2+3+2 })
	require.EqualValues(t, 5, f.sourceOf(3).Next)
}

// A scanner that cannot begin what it was assigned is not ready.
func TestNotReadyWhileNothingBegins(t *testing.T) {
	a := &assignment{}
	require.NoError(t, a.ready())
	now := time.Now()
	a.since.Store(&now)
	require.NoError(t, a.ready())
	then := now.Add(-standAfter)
	a.since.Store(&then)
	require.ErrorContains(t, a.ready(), "newly assigned partitions are not read")
}

// The client may say that a log lost records of which nothing is stored yet; and an answer about a source may come too late.
func TestAHaltThatIsAboutNothingStoredEnds(t *testing.T) {
	f := newFixture(t)
	s := f.start(f.store, Config{})
	key := partitionKey{schemas.TopicIntake, 0}
	f.eventually("it is assigned", func() bool { _, _, reading := s.parts.readTo(key); return reading })
	s.checker.halt(key, halt{source: 99, next: 7, same: 3, end: 3})
	require.NoError(t, s.parts.halted.ready(), "about a source that is no longer the partition's")
	s.checker.dataLost(&kgo.ErrDataLoss{Topic: key.topic, Partition: key.partition, ConsumedTo: 4})
	require.Error(t, s.parts.halted.ready())
	f.publish(asksIn("a", 4, 0)...)
	f.eventually("it is read", func() bool { return f.tasks() == 4 })
	require.NoError(t, s.parts.halted.ready())
}

// idle is a scanner whose worker is called by hand, with one source at what is stored.
func (f *fixture) idle(next int64, epoch intake.Epoch) (*Scanner, *reading) {
	s := f.scanner(f.store, Config{})
	f.Cleanup(s.asks.Close)
	s.group.Close()
	key := partitionKey{schemas.TopicIntake, 0}
	src, err := intake.New(f.store).Source(f.Context(), key.topic, [16]byte{1}, 0, next)
	require.NoError(f, err)
	f.sql(fmt.Sprintf("UPDATE sources SET epoch = %d, epoch_from = %d, epoch_to = %d", epoch.Number, epoch.From, epoch.To))
	src.Epoch = epoch
	s.parts.mu.Lock()
	defer s.parts.mu.Unlock()
	s.parts.sources[key] = &src
	s.parts.begun(key, next)
	return s, s.parts.readings[key]
}

// Records of a later leader are stored behind others only if the log still has those. What was read of the log that is gone, and
// that nobody else has any more, is stored.
func TestALaterLeaderEpochIsVerified(t *testing.T) {
	for name, c := range map[string]struct {
		log    int // records of epoch 0 that the log has
		stored int64
		halted bool
	}{"the log has them": {14, 20, false}, "the log has lost two of them": {12, 14, true}, "the log has lost what is stored": {8, 14, true}} {
		t.Run(name, func(t *testing.T) {
			f := newFixture(t)
			f.publish(asksIn("log", c.log, 0)...)
			f.elect(0)
			f.publish(asksIn("later", 20, 0)...)
			s, r := f.idle(10, intake.Epoch{Number: 0, From: 0, To: 10})
			read := asksAt(r, 10, 10)
			for _, rec := range read.records[4:] {
				rec.LeaderEpoch = 1
			}
			left, err := s.worker.storeStretches(t.Context(), []stretch{read})
			require.NoError(t, err)
			require.Empty(t, left)
			require.Equal(t, c.stored, f.sourceOf(0).Next)
			require.Equal(t, int(c.stored-10), f.tasks())
			require.Equal(t, c.halted, s.parts.halted.has(r.key))
		})
	}
}

// Whatever the client does after a loss: a record at an offset that is stored, and that another leader wrote, is not skipped.
func TestARecordOfAnotherLogIsNotSkipped(t *testing.T) {
	f := newFixture(t)
	s, r := f.idle(10, intake.Epoch{Number: 3, From: 4, To: 10})
	for name, epoch := range map[string]int32{"of a later leader": 4, "of an earlier one": 2} {
		read := asksAt(r, 7, 3)
		for _, rec := range read.records {
			rec.LeaderEpoch = epoch
		}
		left, err := s.worker.storeStretches(t.Context(), []stretch{read})
		require.NoError(t, err)
		require.Empty(t, left)
		require.True(t, s.parts.halted.has(r.key), name)
		require.EqualValues(t, 10, f.sourceOf(0).Next)
		s.parts.halted.clear(r.key)
		r.until.Store(0)
	}
	again := asksAt(r, 7, 5)
	for _, rec := range again.records {
		rec.LeaderEpoch = 3
	}
	_, err := s.worker.storeStretches(t.Context(), []stretch{again})
	require.NoError(t, err)
	require.EqualValues(t, 12, f.sourceOf(0).Next, "the same records again are as harmless as ever")
}

func TestAnOperatorMovesAPartitionOn(t *testing.T) {
	f := newFixture(t)
	s, r := f.idle(10, intake.Epoch{Number: -1})
	src := f.sourceOf(0)
	s.parts.mu.Lock()
	s.parts.topicIDs[src.Topic] = src.TopicID
	s.parts.mu.Unlock()
	require.Len(t, s.parts.adopt([]intake.Source{src}), 1)
	require.False(t, r.ended.Load(), "nothing has moved")
	src.Next = 13
	s.parts.adopt([]intake.Source{src})
	require.True(t, r.ended.Load())
	require.EqualValues(t, 13, s.parts.again[r.key])
}

// A partition that this scanner does not have any more is somebody else's to halt.
func TestARevokedPartitionIsNotHalted(t *testing.T) {
	f := newFixture(t)
	s, r := f.idle(10, intake.Epoch{Number: -1})
	s.checker.halt(r.key, halt{next: 10, same: -1, end: -1})
	require.Error(t, s.parts.halted.ready())
	s.parts.drop(map[string][]int32{r.key.topic: {r.key.partition}})
	require.NoError(t, s.parts.halted.ready())
	s.checker.halt(r.key, halt{next: 10, same: -1, end: -1})
	require.NoError(t, s.parts.halted.ready())
}
