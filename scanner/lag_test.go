package scanner

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"
	"go.uber.org/zap"

	"github.com/notyet/notyet/internal/kafka"
	"github.com/notyet/notyet/schemas"
)

// The lag is that of the database behind Kafka, also while the database is away, and is not shown
// where Kafka does not say where the intake ends.
func TestLag(t *testing.T) {
	f := newFixture(t)
	s := f.start(f.store, Config{})
	lagging := func() int {
		s.lag.look(t.Context())
		return gauged(s.lag.gauge.WithLabelValues(schemas.TopicIntake, "0"))
	}
	f.publish(asksIn("a", 6, 0)...)
	f.eventually("all is stored", func() bool { return f.tasks() == 6 })
	f.eventually("and it is known", func() bool { return lagging() == 0 })

	s.parts.mu.Lock() // what is stored is known to be less
	src := *s.parts.sources[partitionKey{schemas.TopicIntake, 0}]
	src.Next -= 4
	s.parts.sources[partitionKey{schemas.TopicIntake, 0}] = &src
	s.parts.mu.Unlock()
	require.Equal(t, 4, lagging())

	s.parts.drop(map[string][]int32{schemas.TopicIntake: {0}})
	require.Zero(t, lagging(), "another scanner has it now")

	other := *s.lag
	other.topics = []string{"no such topic"}
	s.lag.gauge.WithLabelValues("old", "0").Set(7)
	other.look(t.Context())
	require.Zero(t, gauged(s.lag.gauge.WithLabelValues("old", "0")), "what is not known is not shown")
}

// Nothing of a partition is stored: its lag counts from where it began to be read.
func TestLagOfANewPartition(t *testing.T) {
	p := newPartitions(nil)
	key := partitionKey{"in", 3}
	p.sources[key] = nil
	require.Empty(t, p.storedUpTo())
	p.begun(key, 17)
	require.Equal(t, map[partitionKey]int64{key: 17}, p.storedUpTo())
}

// While a producer's transaction is open, nobody reads what is behind its start: the lag to there is 0 and the partition stands.
func TestAnOpenTransactionIsSeen(t *testing.T) {
	f := newFixture(t)
	s := f.start(f.store, Config{})
	key := partitionKey{schemas.TopicIntake, 0}
	look := func() (lag, hidden int) {
		s.lag.look(t.Context())
		return gauged(s.lag.gauge.WithLabelValues(key.topic, "0")), gauged(s.lag.hidden.WithLabelValues(key.topic, "0"))
	}
	stands := func() (out []int64) {
		s.watcher.standing.each(func(_ partitionKey, at tried, _ time.Duration) { out = append(out, at.offset) })
		return out
	}
	f.publish(asksIn("a", 6, 0)...)
	f.eventually("all is stored", func() bool { return f.tasks() == 6 })
	writer, err := kafka.New(f.kafka, zap.NewNop(), kgo.RecordPartitioner(kgo.ManualPartitioner()), kgo.TransactionalID("caller"))
	require.NoError(t, err)
	defer writer.Close()
	require.NoError(t, writer.BeginTransaction())
	require.NoError(t, writer.ProduceSync(t.Context(), asksIn("b", 3, 0)...).FirstErr())
	f.publish(asksIn("c", 2, 0)...)

	f.eventually("it is known", func() bool { lag, hidden := look(); return lag == 0 && hidden == 5 })
	require.Empty(t, stands(), "not for a minute yet")
	back := func() {
		s.watcher.standing.mu.Lock()
		defer s.watcher.standing.mu.Unlock()
		open := s.watcher.standing.open[key]
		open.since = open.since.Add(-standAfter)
		s.watcher.standing.open[key] = open
	}
	back()
	_, _ = look()
	require.Equal(t, []int64{6}, stands())
	require.NoError(t, s.watcher.standing.ready(), "the scanner can do nothing about it")
	s.watcher.look(t.Context())
	require.GreaterOrEqual(t, gauged(s.watcher.metrics.standing.WithLabelValues(key.topic, "0")), 60)
	p := f.stands(0)
	require.Equal(t, StateStands, p.State)
	require.Contains(t, p.Detail, "transaction is open")
	require.EqualValues(t, 5, p.Lag)

	require.NoError(t, writer.EndTransaction(t.Context(), kgo.TryCommit))
	f.eventually("all is stored", func() bool { return f.tasks() == 11 })
	f.eventually("nothing stands", func() bool { _, hidden := look(); return hidden == 0 && len(stands()) == 0 })
	require.Equal(t, StateOK, f.stands(0).State)
}

// Records that come while Kafka is asked are in no open transaction.
func TestNewRecordsAreNotHidden(t *testing.T) {
	f := newFixture(t)
	s := f.start(f.store, Config{})
	key := partitionKey{schemas.TopicIntake, 0}
	f.publish(asksIn("a", 6, 0)...)
	f.eventually("all is stored", func() bool { return f.tasks() == 6 })
	var asked atomic.Int32
	var looked atomic.Bool // the scanner asks until the test has ended
	f.cluster.ControlKey(int16(kmsg.ListOffsets), func(kmsg.Request) (kmsg.Response, error, bool) {
		if looked.Load() {
			return nil, nil, false
		}
		f.cluster.KeepControl()
		n := asked.Add(1)
		f.cluster.SleepControl(func() { f.publish(ask(fmt.Sprint("while asked ", n), 0)) })
		return nil, nil, false
	})
	s.lag.look(t.Context())
	looked.Store(true)
	require.GreaterOrEqual(t, asked.Load(), int32(2))
	require.Zero(t, gauged(s.lag.hidden.WithLabelValues(key.topic, "0")))
	s.watcher.standing.mu.Lock()
	defer s.watcher.standing.mu.Unlock()
	require.Empty(t, s.watcher.standing.open)
}

// A look that Kafka does not answer says nothing about a transaction that is open.
func TestAFailedLookForgetsNoOpenTransaction(t *testing.T) {
	f := newFixture(t)
	s := f.start(f.store, Config{})
	f.publish(ask("a", 0))
	f.eventually("the partition is read", func() bool { return f.tasks() == 1 })
	open := map[partitionKey]int64{{schemas.TopicIntake, 0}: 6}
	s.watcher.standing.blocked(open, nil)
	s.watcher.standing.mu.Lock()
	before := s.watcher.standing.open[partitionKey{schemas.TopicIntake, 0}]
	s.watcher.standing.mu.Unlock()
	f.cluster.ControlKey(int16(kmsg.ListOffsets), func(kmsg.Request) (kmsg.Response, error, bool) {
		f.cluster.KeepControl()
		return nil, errors.New("not now"), true
	})
	bound, cancel := context.WithTimeout(t.Context(), time.Second)
	defer cancel()
	s.lag.look(bound)
	s.watcher.standing.mu.Lock()
	defer s.watcher.standing.mu.Unlock()
	require.Equal(t, map[partitionKey]tried{{schemas.TopicIntake, 0}: before}, s.watcher.standing.open)
}
