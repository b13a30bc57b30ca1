package scanner

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"
	"go.uber.org/zap"

	"github.com/notyet/notyet/internal/kafka"
	"github.com/notyet/notyet/schemas"
	"github.com/notyet/notyet/store/intake"
)

const noisy = "noisy.intake"

// pacing is a pacer of the intake noisy with so many requests a second, to whose scanner the partitions 0 and 1 of 4 are assigned, beside
// one of another intake.
func pacing(perSecond int) *pacer { return pacingAt(Quota{RequestsPerSecond: perSecond}, nil) }

func pacingAt(quota Quota, counter pendingCounter) *pacer {
	parts := newPartitions(zap.NewNop())
	p := newPacer(map[string]Quota{noisy: quota}, []string{noisy, "calm.intake"}, parts, nil, counter, prometheus.NewRegistry(), zap.NewNop())
	for _, key := range []partitionKey{{noisy, 0}, {noisy, 1}, {"calm.intake", 0}} {
		parts.sources[key] = nil
		parts.begun(key, 0)
	}
	p.sizes.Store(&map[string][]int32{noisy: {0, 1, 2, 3}})
	p.divide()
	return p
}

// polled is what a poll has of a partition: n records from an offset on.
func polled(topic string, partition int32, from, n int64) (out []*kgo.Record) {
	for at := from; at < from+n; at++ {
		out = append(out, &kgo.Record{Topic: topic, Partition: partition, Offset: at, Timestamp: time.Now(), Value: []byte("v"), Headers: []kgo.RecordHeader{{Key: schemas.HeaderDelay, Value: []byte("v")}}})
	}
	return out
}

// take has the pacer take n records of a partition, and returns what passes at once.
func (p *pacer) take(t *testing.T, topic string, partition int32, from, n int64) []stretch {
	r, ok := p.parts.received(polled(topic, partition, from, n))
	require.True(t, ok)
	return p.admit(r)
}

// covered requires that stretches of a partition follow each other without a gap, and returns where they end.
func follow(t *testing.T, from int64, stretches []stretch) int64 {
	for _, s := range stretches {
		require.Equal(t, from, s.from)
		for i, r := range s.records {
			require.Equal(t, from+int64(i), r.Offset)
			require.Equal(t, "v", string(r.Value)+string(r.Headers[0].Value[1:]))
		}
		from = s.to
	}
	return from
}

func (p *pacer) paused() map[partitionKey]bool {
	out := map[partitionKey]bool{}
	p.pause(out)
	return out
}

func TestAnIntakeBeyondItsQuotaWaits(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := pacing(20) // 10/s here: it has half of the partitions
		began := time.Now()
		require.Len(t, p.take(t, "calm.intake", 0, 0, 100)[0].records, 100, "an intake without a quota")
		require.Empty(t, p.paused())
		at := follow(t, 0, p.take(t, noisy, 0, 0, 100))
		require.EqualValues(t, 10, at, "what was not used of the last second")
		require.Empty(t, p.take(t, noisy, 1, 0, 20))
		require.Empty(t, p.release())
		require.Equal(t, map[partitionKey]bool{{noisy, 0}: true, {noisy, 1}: true}, p.paused(), "nothing more of it is fetched")
		var second []stretch
		for len(p.paused()) > 0 {
			wait := p.next(kafka.PollAtMost)
			require.LessOrEqual(t, wait, 100*time.Millisecond)
			require.GreaterOrEqual(t, wait, pollPause)
			time.Sleep(wait)
			for _, s := range p.release() {
				if s.key().partition == 0 {
					at = follow(t, at, []stretch{s})
				} else {
					second = append(second, s)
				}
			}
			require.InDelta(t, time.Since(began).Seconds()*10+10, float64(at+int64(len(second))), 1)
		}
		require.EqualValues(t, 100, at)
		require.EqualValues(t, 20, follow(t, 0, second))
		require.InDelta(t, 11, time.Since(began).Seconds(), 0.2)
		require.Equal(t, kafka.PollAtMost, p.next(kafka.PollAtMost))
		require.Zero(t, p.intakes[noisy].bytes)
		require.Zero(t, p.intakes[noisy].wait())
		require.EqualValues(t, len(second), p.parts.readings[partitionKey{noisy, 1}].queued.Load(), "each stretch is counted")
	})
}

// An intake that this scanner may not describe, or that is missing, keeps no other from its count.
func TestATopicThatCannotBeLookedUpDelaysNoOther(t *testing.T) {
	const hidden = "hidden.intake"
	cluster, err := kfake.NewCluster(kfake.NumBrokers(1), kfake.SeedTopics(4, noisy, hidden), kfake.EnableSASL(), kfake.EnableACLs(), kfake.Superuser("PLAIN", "root", "p"),
		kfake.User("PLAIN", "u", "p", kfake.ACL{Resource: kmsg.ACLResourceTypeTopic, Name: noisy, Pattern: kmsg.ACLResourcePatternTypeLiteral, Operation: kmsg.ACLOperationDescribe, Allow: true}))
	require.NoError(t, err)
	defer cluster.Close()
	client, err := kafka.NewProducer(kafka.Config{Brokers: cluster.ListenAddrs(), SASL: "PLAIN", Credentials: func() (string, string) { return "u", "p" }}, zap.NewNop())
	require.NoError(t, err)
	defer client.Close()
	quota := Quota{PendingTasks: 20}
	topics := []string{noisy, hidden, "missing.intake"}
	p := newPacer(map[string]Quota{noisy: quota, hidden: quota, "missing.intake": quota}, topics, newPartitions(zap.NewNop()), client, &database{}, prometheus.NewRegistry(), zap.NewNop())
	p.run(t.Context())
	require.Equal(t, map[string][]int32{noisy: {0, 1, 2, 3}}, *p.sizes.Load())
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	p.run(ended)
	require.Equal(t, map[string][]int32{noisy: {0, 1, 2, 3}}, *p.sizes.Load(), "what was found stays")
}

func TestASlowQuotaIsSharedAmongScanners(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := pacing(1) // one in two seconds here
		require.Len(t, p.take(t, noisy, 0, 0, 10), 1)
		time.Sleep(10 * time.Second)
		n := 0
		for _, s := range p.release() {
			n += len(s.records)
		}
		require.Equal(t, 1, n, "no more than a second's are saved up, but one")
		require.Equal(t, 10*time.Second, p.intakes[noisy].wait())
		time.Sleep(2 * time.Second)
		require.Len(t, p.release(), 1)
		p.sizes.Store(&map[string][]int32{noisy: {0, 1}}) // the other scanner has left
		p.divide()
		time.Sleep(time.Second)
		require.Len(t, p.release(), 1)
	})
}

func TestWhatIsReadAgainCostsNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := pacing(20)
		require.EqualValues(t, 10, follow(t, 0, p.take(t, noisy, 0, 0, 15)))
		key := partitionKey{noisy, 0}
		p.parts.setBack(p.parts.readings[key], 0) // a batch has failed
		p.parts.begun(key, 0)
		require.Empty(t, p.release())
		require.Empty(t, p.paused(), "what belongs to the reading before is dropped")
		require.EqualValues(t, 10, follow(t, 0, p.take(t, noisy, 0, 0, 15)), "the first ten have passed before")
		time.Sleep(500 * time.Millisecond)
		require.EqualValues(t, 15, follow(t, 10, p.release()))
	})
}

func TestWhatAHaltedPartitionHasDoesNotWait(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := pacing(20)
		p.take(t, noisy, 0, 0, 50)
		require.Empty(t, p.release())
		require.True(t, p.parts.halt(partitionKey{noisy, 0}, halt{}))
		require.EqualValues(t, 50, follow(t, 10, p.release()))
	})
}

// However much a poll brings, an intake at its quota keeps a bounded part of it. The rest is polled again.
func TestWhatIsHeldIsBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := pacing(2)
		p.memory = 80_000
		records, more := polled(noisy, 0, 0, 100), polled(noisy, 1, 0, 100)
		each := weight(records[0])
		p.expect()
		n := p.fit(partitionKey{noisy, 0}, records)
		require.Equal(t, 1+5000/each, n, "one passes, the others have half of an eighth")
		p.take(t, noisy, 0, 0, int64(n))
		require.Zero(t, p.fit(partitionKey{noisy, 0}, polled(noisy, 0, 100, 5)), "nothing is taken behind what did not fit")
		require.Equal(t, 5000/each, p.fit(partitionKey{noisy, 1}, more))
		p.release()
		require.Equal(t, map[partitionKey]int64{{noisy, 0}: int64(n), {noisy, 1}: 0}, p.parts.skip, "they are polled again from there")
		p.memory = 0
		p.expect()
		require.Zero(t, p.fit(partitionKey{noisy, 1}, more), "there is something to release")
		clear(p.parts.skip)
		p.release()
		require.Empty(t, p.parts.skip, "not more often than once a second")
		require.True(t, p.paused()[partitionKey{noisy, 1}])
		time.Sleep(time.Minute)
		for len(p.paused()) > 0 {
			p.release()
			time.Sleep(time.Second)
		}
		require.NotZero(t, p.fit(partitionKey{noisy, 1}, more), "one goes on its way always")
		require.Equal(t, 100, p.fit(partitionKey{"calm.intake", 0}, polled("calm.intake", 0, 0, 100)))
	})
}

// A request for which there is no room beside what the intake holds is polled again once that has passed, and not before. Meanwhile the
// other partitions' next requests do not take the room.
func TestALargeRequestHasItsTurn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := &database{pending: [5]intake.Size{tasks(10)}}
		p := pacingAt(Quota{PendingTasks: 20}, d)
		p.count(t)
		small, large := partitionKey{noisy, 0}, partitionKey{noisy, 1}
		require.Empty(t, p.take(t, noisy, 0, 0, 1))
		other := partitionKey{noisy, 2}
		p.parts.sources[other] = nil
		p.parts.begun(other, 0)
		p.divide()
		require.Equal(t, map[partitionKey]bool{small: true}, p.paused())
		records := polled(noisy, 1, 0, 1)
		records[0].Value = make([]byte, heldBytes)
		p.expect()
		require.Zero(t, p.fit(large, records))
		for range 100 {
			require.Empty(t, p.release())
			require.Equal(t, map[partitionKey]bool{small: true, large: true}, p.paused())
			require.Empty(t, p.parts.skip)
			time.Sleep(time.Second)
		}
		next := polled(noisy, 2, 0, 2)
		next[0].Headers = []kgo.RecordHeader{{Key: schemas.HeaderOp, Value: []byte("cancel")}}
		require.Equal(t, 1, p.fit(other, next), "a task does not take the room, and a cancel needs none")
		d.pending[0] = tasks(0)
		p.count(t)
		require.Len(t, p.release(), 1)
		require.Equal(t, map[partitionKey]int64{large: 0, other: 0}, p.parts.skip)
		require.Empty(t, p.paused())
		p.expect()
		require.Equal(t, 1, p.fit(large, records))
	})
}

// Nothing waits for a partition that is another scanner's.
func TestAPartitionThatLeavesIsNotAwaited(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := pacingAt(Quota{PendingTasks: 20}, &database{pending: [5]intake.Size{tasks(10)}})
		p.count(t)
		large := partitionKey{noisy, 1}
		require.Empty(t, p.take(t, noisy, 0, 0, 1))
		records := polled(noisy, 1, 0, 1)
		records[0].Value = make([]byte, heldBytes)
		p.expect()
		require.Zero(t, p.fit(large, records))
		p.parts.drop(map[string][]int32{noisy: {1}})
		p.parts.assign(map[string]map[int32]kgo.Offset{noisy: {1: kgo.NewOffset()}}, nil, nil, nil)
		p.parts.begun(large, 0)
		p.release()
		p.expect()
		require.Equal(t, 1, p.fit(large, polled(noisy, 1, 0, 1)))
	})
}

// A partition whose flood fills its part of what may be held leaves the other partitions theirs.
func TestAFloodInOnePartitionLeavesTheOthersFetched(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := pacingAt(Quota{PendingTasks: 20}, &database{pending: [5]intake.Size{tasks(10)}})
		p.count(t)
		flood := polled(noisy, 0, 0, 10_000)
		p.expect()
		n := p.fit(partitionKey{noisy, 0}, flood)
		require.Less(t, n, len(flood))
		require.Empty(t, p.take(t, noisy, 0, 0, int64(n)))
		p.release()
		require.Equal(t, map[partitionKey]bool{{noisy, 0}: true}, p.paused())
		p.expect()
		require.Equal(t, n, p.fit(partitionKey{noisy, 1}, polled(noisy, 1, 0, 10_000)))
	})
}

// One intake floods, with a cancel behind the flood, and the other goes on without a delay. Scanners come and go meanwhile, and each
// request is stored once. What is held has so little room that most is polled again.
func TestAnIntakeAtItsQuotaDelaysNoOther(t *testing.T) {
	f := newFixture(t)
	_, err := kafka.EnsureTopics(f.Context(), f.client, []kafka.TopicSpec{{Name: noisy, Partitions: 2, Replication: 1}})
	require.NoError(t, err)
	const n, perSecond = 1000, 100
	cfg := Config{Intake: []string{noisy, schemas.TopicIntake}, Quotas: map[string]Quota{noisy: {RequestsPerSecond: perSecond}}}
	small := func() *running {
		ctx, cancel := context.WithCancel(context.Background())
		r := &running{Scanner: f.scanner(f.open(), cfg), f: f, stop: cancel, done: make(chan error, 1)}
		r.poller.pacer.memory = 300_000
		go func() { r.done <- r.Run(ctx) }()
		f.Cleanup(r.end)
		return r
	}
	var flood []*kgo.Record
	for i := range n {
		flood = append(flood, record(noisy, int32(i%2), schemas.HeaderTopic, "orders", schemas.HeaderID, fmt.Sprintf("noisy-%d", i), schemas.HeaderDelay, "1h"))
	}
	flood = append(flood, record(noisy, 0, schemas.HeaderOp, "cancel", schemas.HeaderTopic, "orders", schemas.HeaderID, fmt.Sprintf("noisy-%d", n-2)))
	f.publish(flood...)
	began := time.Now()
	stored := func() int { return f.count("SELECT COUNT(*) FROM tasks WHERE CAST(id AS TEXT) LIKE 'noisy-%'") }
	first := small()
	f.eventually("it goes on, at its pace", func() bool { return stored() > perSecond })
	f.publish(asksIn("calm", 50, 0)...)
	f.eventually("the other intake is stored", func() bool { return f.count("SELECT COUNT(*) FROM tasks WHERE CAST(id AS TEXT) LIKE 'calm%'") == 50 })
	require.Less(t, stored(), n, "while the first is at its quota")
	second := small()
	f.eventually("both scanners read", func() bool { return len(second.reads()) > 0 })
	first.end()
	f.eventually("all are stored", func() bool { return stored() == n })
	require.GreaterOrEqual(t, time.Since(began), (n-2*perSecond)*time.Second/perSecond, "a start may take a second's at once, and so may its successor")
	events := f.events(func(all []schemas.Event) bool {
		return slices.ContainsFunc(all, func(e schemas.Event) bool { return e.State == schemas.StateCancelled })
	})
	require.Equal(t, 1, byID(events, schemas.StateCancelled)[fmt.Sprintf("noisy-%d", n-2)], "a cancel waits behind what it cancels")
	sources, err := intake.New(f.store).Sources(t.Context())
	require.NoError(t, err)
	total := int64(0)
	for _, src := range intake.InUse(sources) {
		if strings.HasPrefix(src.Topic, "noisy") {
			total += src.Next
		}
	}
	require.EqualValues(t, n+1, total)
	require.Zero(t, f.count("SELECT COUNT(*) FROM dead_letters"))
}

// Other numbers of quotas are in force from the next poll on. A quota that was not there does not begin, and one that is left out does not end.
func TestQuotasChangeWhileAScannerRuns(t *testing.T) {
	p := pacingAt(Quota{RequestsPerSecond: 20, PendingTasks: 100}, nil)
	s := &Scanner{poller: &poller{pacer: p}, worker: &worker{targets: newTargets(nil, nil, nil, intake.Intake{}, nil)}}
	in := p.intakes[noisy]
	for _, c := range []struct {
		next  map[string]Quota
		limit float64 // of this scanner, which has half of the partitions
		tasks int64
	}{
		{map[string]Quota{noisy: {RequestsPerSecond: 200, PendingTasks: 10, PendingBytes: 1}}, 100, 5},
		{map[string]Quota{noisy: {}, "calm.intake": {RequestsPerSecond: 1}}, 100, 5},
		{nil, 100, 5},
		{map[string]Quota{noisy: {RequestsPerSecond: 2, PendingTasks: 1000}}, 1, 500},
	} {
		s.SetQuotas(c.next)
		p.divide()
		require.InDelta(t, c.limit, float64(in.bucket.Limit()), 0.001)
		require.Equal(t, max(int(c.limit), 1), in.bucket.Burst())
		require.Equal(t, intake.Size{Tasks: c.tasks}, in.pending.limit)
		require.NotContains(t, p.intakes, "calm.intake")
	}
}
