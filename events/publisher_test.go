package events

import (
	"context"
	"crypto/rand"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"
	"go.uber.org/zap"

	"github.com/notyet/notyet/internal/kafka"
	"github.com/notyet/notyet/schemas"
	"github.com/notyet/notyet/store"
	"github.com/notyet/notyet/store/outbox"
	"github.com/notyet/notyet/test/counter"
)

const bound = time.Minute // of what takes moments, on a machine that does much else

type fixture struct {
	*testing.T
	*Publisher
	cluster *kfake.Cluster
	kafka   kafka.Config
}

func start(t *testing.T, cfg Config) *fixture {
	t.Parallel()
	cluster, err := kfake.NewCluster(kfake.NumBrokers(1), kfake.SeedTopics(1, schemas.TopicResults))
	require.NoError(t, err)
	t.Cleanup(cluster.Close)
	st, err := store.Open(t.Context(), store.Config{DSN: "sqlite:" + t.TempDir() + "/notyet.db"}, zap.NewNop())
	require.NoError(t, err)
	t.Cleanup(func() { _ = st.Close() })
	require.NoError(t, st.Migrate(t.Context(), 1))
	cfg.Sources = func() []int { return []int{outbox.TransitionSource} }
	f := &fixture{T: t, cluster: cluster, kafka: kafka.Config{Brokers: cluster.ListenAddrs()}}
	f.Publisher, err = New(f.kafka, outbox.New(st), cfg, prometheus.NewRegistry(), zap.NewNop())
	require.NoError(t, err)
	t.Cleanup(func() { f.Close(0) })
	return f
}

// mute keeps the results topic from acknowledging, until the answer is called.
func (f *fixture) mute() (answer func()) {
	return f.cluster.Fault(kfake.Fault{Keys: []kmsg.Key{kmsg.Produce}, Topic: schemas.TopicResults, Err: kerr.NotEnoughReplicas, Count: -1}).Remove
}

func (f *fixture) run() {
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan struct{})
	go func() { defer close(ended); f.Publisher.Run(ctx) }()
	f.Cleanup(func() { cancel(); <-ended })
}

// save puts n runs of one event into the outbox.
func (f *fixture) save(n int) (runs []outbox.Box) {
	for i := range n {
		boxes, err := f.outbox.Store(f.Context(), []schemas.Event{event(i)}, time.Now().UnixMilli())
		require.NoError(f, err)
		runs = append(runs, boxes...)
	}
	return runs
}

func event(i int) schemas.Event {
	return schemas.Event{ID: fmt.Sprint("e", i), State: schemas.StateDead, At: 1, Reason: strings.Repeat("x", 1000)}
}

// ids waits for n different events on the topic.
func (f *fixture) ids(n int) map[string]int {
	c, err := kafka.New(f.kafka, zap.NewNop(), kgo.ConsumeTopics(schemas.TopicResults), kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()))
	require.NoError(f, err)
	defer c.Close()
	ctx, cancel := context.WithTimeout(f.Context(), bound)
	defer cancel()
	out := map[string]int{}
	for len(out) < n {
		fetches := c.PollFetches(ctx)
		require.NoError(f, ctx.Err(), "%d of %d events", len(out), n)
		for _, r := range fetches.Records() {
			out[string(r.Key)]++
		}
	}
	return out
}

func (f *fixture) left() int {
	runs, err := f.outbox.Pending(context.Background(), []int{outbox.TransitionSource}, lookBoxes)
	require.NoError(f, err)
	return len(runs)
}

// A topic that refuses everything, because it is gone or may not be written, has acknowledged nothing either.
func TestATopicThatRefusesEverythingIsUnanswered(t *testing.T) {
	f := start(t, Config{LookEvery: 20 * time.Millisecond})
	allow := f.cluster.Fault(kfake.Fault{Keys: []kmsg.Key{kmsg.Produce}, Topic: schemas.TopicResults, Err: kerr.TopicAuthorizationFailed, Count: -1}).Remove
	f.run()
	f.Stored(f.save(1))
	require.Eventually(t, func() bool { return f.Unanswered() > time.Second }, bound, time.Millisecond, "several looks have offered it")
	require.Equal(t, 1, f.left())
	allow()
	f.ids(1)
	require.Eventually(t, func() bool { return f.left() == 0 && f.Unanswered() == 0 }, bound, time.Millisecond)
}

// A topic that does not answer takes its room and no more, blocks nobody, and once it answers
// everything is published.
func TestSilentTopicBlocksNobody(t *testing.T) {
	f := start(t, Config{MaxRecords: 100, MaxBytes: 20_000, LookEvery: 50 * time.Millisecond})
	answer := f.mute()
	f.run()
	require.NoError(t, f.Ready(t.Context()))
	runs := f.save(60)
	f.Stored(runs)
	f.mu.Lock()
	require.LessOrEqual(t, f.bytes, 20_000)
	require.Positive(t, f.records)
	f.mu.Unlock()
	require.False(t, f.Publish([]schemas.Event{event(99)}, func(error) { t.Error("it was not taken") }), "the caller learns that there is no room")
	require.Equal(t, 60, f.left())

	f.mu.Lock()
	f.since = time.Now().Add(-time.Hour)
	f.mu.Unlock()
	require.Greater(t, f.Unanswered(), 30*time.Minute)
	require.ErrorContains(t, f.Ready(t.Context()), "notyet.results has acknowledged no event")

	answer()
	require.Len(t, f.ids(60), 60)
	require.Eventually(t, func() bool { return f.left() == 0 }, bound, time.Millisecond)
	require.NoError(t, f.Ready(t.Context()))
	require.Eventually(t, func() bool {
		f.mu.Lock()
		defer f.mu.Unlock()
		return f.records+f.bytes+len(f.published)+len(f.stored) == 0
	}, bound, time.Millisecond, "nothing is kept in memory")
}

// What a process that died has left is published by whoever has the source now: not at first sight,
// for it may be on its way.
func TestLeftoversArePublishedWhenSeenTwice(t *testing.T) {
	f := start(t, Config{})
	f.save(3)
	var l leftovers
	f.look(t.Context(), &l)
	require.Empty(t, l.due)
	f.look(t.Context(), &l)
	require.Len(t, l.due, 3)
	f.publishLeft(t.Context(), &l)
	require.Equal(t, map[string]int{"e0": 1, "e1": 1, "e2": 1}, f.ids(3))
	require.Eventually(t, func() bool { f.forget(t.Context()); return f.left() == 0 }, bound, time.Millisecond)
	f.look(t.Context(), &l)
	require.Empty(t, l.due)
}

// A stop does not wait for a topic that does not answer.
func TestCloseIsBounded(t *testing.T) {
	f := start(t, Config{})
	f.mute()
	f.Stored(f.save(3))
	closed := make(chan struct{})
	go func() { f.Close(10 * time.Millisecond); close(closed) }()
	select {
	case <-closed:
	case <-time.After(bound):
		require.Fail(t, "it waits for the topic")
	}
	require.Equal(t, 3, f.left(), "they stay in the outbox")
}

// A topic may take less at once than the client gathers, and less than an event. Nobody waits for good:
// each event is offered alone, and one that is refused alone is given up.
func TestRefusedEventsHoldUpNobody(t *testing.T) {
	f := start(t, Config{LookEvery: 20 * time.Millisecond})
	limit := "2000"
	_, err := kadm.NewClient(f.client).AlterTopicConfigs(t.Context(), []kadm.AlterConfig{{Op: kadm.SetConfig, Name: "max.message.bytes", Value: &limit}}, schemas.TopicResults)
	require.NoError(t, err)
	var events []schemas.Event
	for i := range 20 {
		e := event(i)
		e.Reason = rand.Text() + rand.Text() + rand.Text() + rand.Text() // so that many do not become small
		events = append(events, e)
	}
	large := event(20)
	for len(large.Reason) < 4000 {
		large.Reason += rand.Text()
	}
	boxes, err := f.outbox.Store(t.Context(), append(events, large), time.Now().UnixMilli())
	require.NoError(t, err)
	f.run()
	f.Stored(boxes)
	require.Eventually(t, func() bool { return f.left() == 0 }, bound, time.Millisecond)
	published := f.ids(20)
	require.NotContains(t, published, large.ID)
	f.Stored(f.save(1))
	require.Eventually(t, func() bool { return f.left() == 0 }, bound, time.Millisecond, "others go on")
}

// An event that goes alone, to a partition that does not answer, holds up no other.
func TestAnUnansweredEventHoldsUpNobody(t *testing.T) {
	f := start(t, Config{LookEvery: 20 * time.Millisecond})
	_, err := kadm.NewClient(f.client).CreatePartitions(t.Context(), 1, schemas.TopicResults)
	require.NoError(t, err)
	of := [2]int{} // an event for each partition
	for i, place := 0, kgo.StickyKeyPartitioner(nil).ForTopic(schemas.TopicResults); i < 20; i++ {
		of[place.Partition(&kgo.Record{Key: []byte(event(i).ID)}, 2)] = i
	}
	require.NotEqual(t, of[0], of[1])
	f.cluster.Fault(kfake.Fault{Keys: []kmsg.Key{kmsg.Produce}, Topic: schemas.TopicResults, Partitions: []int32{0}, Err: kerr.NotEnoughReplicas, Count: -1})
	for _, i := range of {
		boxes, err := f.outbox.Store(t.Context(), []schemas.Event{event(i)}, time.Now().UnixMilli())
		require.NoError(t, err)
		if i == of[0] {
			f.refused[keyOf(boxes[0])] = true
		}
	}
	f.run()
	require.Eventually(t, func() bool { return f.left() == 1 }, bound, time.Millisecond)
}

// What a publisher saw in the outbox is others' to count once none of it is its own.
func TestNothingIsCountedByAPublisherThatLooksAtNothing(t *testing.T) {
	f := start(t, Config{})
	f.save(2)
	var seen leftovers
	f.look(t.Context(), &seen)
	require.Equal(t, 2, counter.Value(f.metrics.waiting))
	f.cfg.Sources = func() []int { return nil }
	f.look(t.Context(), &seen)
	require.Zero(t, counter.Value(f.metrics.waiting))
}
