package dispatcher

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"
	"go.uber.org/zap"

	"github.com/notyet/notyet/dispatcher/flight"
	"github.com/notyet/notyet/internal/kafka"
	"github.com/notyet/notyet/schemas"
)

// partitioned makes a topic with some partitions.
func (f *fixture) partitioned(topic string, n int32) {
	f.Helper()
	admin, err := kafka.New(f.kafka, zap.NewNop())
	require.NoError(f, err)
	defer admin.Close()
	_, err = kafka.EnsureTopics(f.Context(), admin, []kafka.TopicSpec{{Name: topic, Partitions: n, Replication: 1}})
	require.NoError(f, err)
}

// mutePartition keeps one partition from acknowledging.
func (f *fixture) mutePartition(topic string, partition int32, with *kerr.Error) (answer func()) {
	return f.cluster.Fault(kfake.Fault{Keys: []kmsg.Key{kmsg.Produce}, Topic: topic, Partitions: []int32{partition}, Err: with, Count: -1}).Remove
}

// idFor returns the n-th id whose default key goes to a partition out of two.
func idFor(partition, n int) string {
	p := kgo.StickyKeyPartitioner(nil).ForTopic("any")
	for i := 0; ; i++ {
		id := fmt.Sprint("k", i)
		if p.Partition(&kgo.Record{Key: []byte(id)}, 2) == partition {
			if n--; n < 0 {
				return id
			}
		}
	}
}

// However many targets acknowledge nothing, and whatever they do with what they are sent, another target's tasks all go out, and no
// line stands. Later they take their tasks, and get each.
func TestManySilentTargetsLeaveRoom(t *testing.T) {
	for name, c := range map[string]struct {
		n    int
		with *kerr.Error
	}{
		"8, refusing for now":            {8, kerr.NotEnoughReplicas},
		"8, storing, not acknowledging":  {8, kerr.NotEnoughReplicasAfterAppend},
		"20, where nobody knows":         {20, kerr.RequestTimedOut},
		"20, of which nobody is in lead": {20, kerr.NotLeaderForPartition},
	} {
		t.Run(name, func(t *testing.T) {
			var topics []string
			for i := range c.n {
				topics = append(topics, fmt.Sprint("silent", i))
			}
			f := newFixture(t, 4, append(topics, "lively")...)
			lively := f.read("lively")
			var answer []func()
			for _, topic := range topics {
				answer = append(answer, f.refuse(topic, c.with))
			}
			cfg := Config{MemberID: "one", UnresponsiveAfter: 300 * time.Millisecond, StageTasks: 40}
			d := f.start(f.elect(5), t.TempDir(), cfg)
			const each, rounds = 20, 5
			for i, topic := range topics {
				f.schedule(askMany(each, topic, fmt.Sprint("s", i, "-"), time.Now())...)
			}
			for round := range rounds {
				f.schedule(askMany(5, "lively", fmt.Sprint("l", round, "-"), time.Now())...)
				d.kicks.Sweep.Now()
				f.eventually("the other is not held up", func() bool { return lively.count() == 5*(round+1) })
				require.LessOrEqual(t, d.producer().BufferedProduceRecords(), int64(cfg.StageTasks), "what is set aside counts with the rest")
			}
			by := time.Now()
			f.eventually("done moves on", func() bool { return f.settledUpTo(by) })
			f.eventually("what they do not take is given up", func() bool {
				return d.producer().BufferedProduceRecords() == 0 && d.inside(func(in flight.Figures) int { return in.Stuck }) == 0
			})
			require.Len(t, lively.copies(), 5*rounds)

			for _, mend := range answer {
				mend()
			}
			for _, topic := range topics {
				read := f.read(topic)
				f.eventually("all arrive at "+topic, func() bool { return len(read.copies()) == each })
			}
			f.eventually("all is settled", func() bool { return d.inside(func(in flight.Figures) int { return in.Claimed }) == 0 })
			require.Zero(t, d.inside(func(in flight.Figures) int {
				return in.SentTasks + in.SentBytes + in.StagedTasks + in.Probes
			}))
		})
	}
}

// One partition of a topic acknowledges nothing: its tasks alone wait, the lines go on, and memory does not fill with them.
func TestSilentPartitionDelaysOnlyItself(t *testing.T) {
	f := newFixture(t, 2, "lively")
	f.partitioned("parts", 2)
	answer := f.mutePartition("parts", 0, kerr.NotEnoughReplicas)
	lively, parts := f.read("lively"), f.read("parts")
	d := f.start(f.elect(5), t.TempDir(), Config{MemberID: "one", UnresponsiveAfter: 2 * time.Second, StageTasks: 40})
	f.schedule(ask("parts", idFor(1, 0), time.Now()))
	f.eventually("the other partition takes tasks", func() bool { return parts.count() == 1 })
	fewAreStuck := func() {
		stuck := d.inside(func(in flight.Figures) int { return in.Stuck })
		if counted(d.metrics.Unresponsive) <= 1 { // otherwise the machine stood still, and tasks of others are stuck, too
			require.LessOrEqual(t, stuck, 5)
		}
	}
	const rounds = 20
	for i := range rounds {
		now := time.Now()
		f.schedule(append(askMany(20, "lively", fmt.Sprint("l", i, "-"), now), ask("parts", idFor(0, i), now), ask("parts", idFor(1, i+1), now))...)
		d.kicks.Sweep.Now()
		f.eventually("others are not held up", func() bool { return lively.count() == 20*(i+1) && parts.count() == i+2 })
		fewAreStuck()
	}
	by := time.Now()
	f.eventually("done moves on", func() bool { return f.settledUpTo(by) })
	f.eventually("and it is the partition alone that is unresponsive", func() bool {
		return slices.Equal(d.Unresponsive(), []string{"parts"}) && d.inside(func(in flight.Figures) int { return in.UnresponsiveOutlets }) == 1
	})
	fewAreStuck()
	answer()
	f.eventually("all arrive", func() bool { return len(parts.copies()) == 2*rounds+1 })
}

// What a target has stored without saying so was delivered, perhaps: nobody is told that it was cancelled, and it is no dead letter.
func TestGivenUpIsNotCalledCancelled(t *testing.T) {
	f := newFixture(t, 2, "murky")
	answer := f.refuse("murky", kerr.NotEnoughReplicasAfterAppend)
	murky, events := f.read("murky"), f.read(results)
	d := f.start(f.elect(5), t.TempDir(), Config{MemberID: "one", UnresponsiveAfter: 300 * time.Millisecond})
	due := time.Now()
	f.schedule(ask("murky", "m", due, schemas.HeaderMaxLateness, "2s"))
	f.eventually("the producer gives it up", func() bool {
		return counted(d.metrics.Unresponsive) == 1 && d.producer().BufferedProduceRecords() == 0 && d.inside(func(in flight.Figures) int { return in.Stuck }) == 0
	})
	require.Positive(t, murky.count(), "it is there")
	done := f.schedule(&kgo.Record{Topic: "intake", Timestamp: time.Now(), Headers: []kgo.RecordHeader{
		{Key: schemas.HeaderOp, Value: []byte("cancel")}, {Key: schemas.HeaderTopic, Value: []byte("murky")}, {Key: schemas.HeaderID, Value: []byte("m")}}})
	for _, box := range done.Events {
		for _, e := range box.Events {
			require.NotEqual(t, schemas.StateCancelled, e.State)
		}
	}
	answer()
	f.eventually("its delivery is told", func() bool { return len(events.events(t, schemas.StateSucceeded)) == 1 })
	require.Empty(t, events.events(t, schemas.StateDead))
}
