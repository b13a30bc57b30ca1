package dispatcher

import (
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/notyet/notyet/dispatcher/flight"
	"github.com/notyet/notyet/internal/sendlog"
	"github.com/notyet/notyet/schemas"
	"github.com/notyet/notyet/store/letters"
	"github.com/notyet/notyet/store/look"
	"github.com/notyet/notyet/test/lettertest"
)

// refuse has the broker answer what is produced to a topic with an error, until it is lifted.
func (f *fixture) refuse(topic string, with *kerr.Error) (lift func()) {
	return f.cluster.Fault(kfake.Fault{Keys: []kmsg.Key{kmsg.Produce}, Topic: topic, Err: with, Count: -1}).Remove
}

// TestRefusedTargetIsTriedAgain: a target that may not be written, or does not exist, costs nobody else anything, holds up no line
// and keeps no body in memory; its tasks stay pending, and are delivered once it takes them.
func TestRefusedTargetIsTriedAgain(t *testing.T) {
	for name, topic := range map[string]string{"it may not be written": "closed", "it does not exist": "late"} {
		t.Run(name, func(t *testing.T) {
			f := newFixture(t, 4, "orders", "closed")
			orders := f.read("orders")
			mend := f.refuse("closed", kerr.TopicAuthorizationFailed)
			if topic == "late" {
				mend = func() {
					client, err := kgo.NewClient(kgo.SeedBrokers(f.kafka.Brokers...))
					require.NoError(t, err)
					defer client.Close()
					_, err = kadm.NewClient(client).CreateTopic(t.Context(), 1, 1, nil, topic)
					require.NoError(t, err)
				}
			}
			d := f.start(f.elect(5), t.TempDir(), Config{MemberID: "one", UndeliverableAfter: time.Hour, StageTasks: 40})
			due := time.Now()
			f.schedule(append(askMany(100, topic, "r", due), append(askMany(20, "orders", "o", due), ask(topic, "cancelled", due))...)...)
			f.eventually("the others are delivered", func() bool { return orders.count() == 20 })
			f.eventually("no line is held up", func() bool { return f.settledUpTo(due) })
			f.eventually("no body is kept", func() bool { return d.inside(func(in flight.Figures) int { return in.Claimed + in.StagedTasks }) == 0 })
			require.Less(t, d.producer().BufferedProduceRecords(), int64(2), "one at a time asks again")
			f.eventually("it can be cancelled between two tries", func() bool {
				v, err := look.New(f.store).Get(t.Context(), topic, "cancelled")
				return err == nil && v.State == "pending"
			})
			f.cancel(topic, "cancelled")
			dead, err := lettertest.All(t.Context(), letters.New(f.store), letters.Filter{})
			require.NoError(t, err)
			require.Empty(t, dead)
			require.Equal(t, 1, d.inside(func(in flight.Figures) int { return in.RefusedTargets }))

			mend()
			mended := f.read(topic)
			f.eventually("all arrive", func() bool { return len(mended.copies()) == 100 })
			f.eventually("all is settled", func() bool { return d.inside(func(in flight.Figures) int { return in.Claimed }) == 0 })
			require.Equal(t, 100, mended.count(), "each once")
			require.Zero(t, d.inside(func(in flight.Figures) int { return in.RefusedTargets }))
			failed := 0
			require.NoError(t, d.sent.Replay(t.Context(), due, func(e sendlog.Entry) error {
				if o := e.Outcome; o != nil && o.Error != "" {
					require.False(t, o.Refused, "what is tried again must not be noted as given up")
					failed++
				}
				return nil
			}))
			require.NotZero(t, failed)
		})
	}
}

// TestRefusedTargetIsGivenUp: with undeliverable-after over, and at once where no later try can help.
func TestRefusedTargetIsGivenUp(t *testing.T) {
	const after = 3 * time.Second
	for name, c := range map[string]struct {
		refusal *kerr.Error
		after   time.Duration
		least   time.Duration
	}{
		"after a while":               {kerr.TopicAuthorizationFailed, after, after},
		"after one try, as is asked":  {kerr.TopicAuthorizationFailed, -1, 0},
		"at once: the record is bad":  {kerr.MessageTooLarge, time.Hour, 0},
		"at once: the name is no use": {kerr.InvalidTopicException, time.Hour, 0},
	} {
		t.Run(name, func(t *testing.T) {
			f := newFixture(t, 2, "closed")
			events := f.read(results)
			f.refuse("closed", c.refusal)
			d := f.start(f.elect(5), t.TempDir(), Config{MemberID: "one", UndeliverableAfter: c.after})
			due := time.Now()
			f.schedule(askMany(10, "closed", "r", due)...)
			f.eventually("they are given up", func() bool { return len(events.events(t, schemas.StateDead)) == 10 })
			require.Equal(t, c.least > 0, counted(d.metrics.Postponed) > 0)
			dead, err := lettertest.All(t.Context(), letters.New(f.store), letters.Filter{})
			require.NoError(t, err)
			require.Len(t, dead, 10)
			for _, l := range dead {
				require.Equal(t, schemas.KindUndeliverable, l.Kind)
				require.Contains(t, l.Reason, c.refusal.Message)
				require.GreaterOrEqual(t, l.DiedAt, due.Add(c.least).UnixMilli())
				told := events.events(t, schemas.StateDead)[l.TaskID]
				require.Equal(t, schemas.KindUndeliverable, told[0].Kind)
			}
		})
	}
}

// TestClockThatABrokerRefuses: while the database's and the broker's clocks are far apart, no task is given up and no line stands.
func TestClockThatABrokerRefuses(t *testing.T) {
	f := newFixture(t, 4, "orders", "clocked")
	orders := f.read("orders")
	mend := f.refuse("clocked", kerr.InvalidTimestamp)
	const silentAfter = 20 * time.Second
	d := f.start(f.elect(5), t.TempDir(), Config{MemberID: "one", UndeliverableAfter: -1, UnresponsiveAfter: silentAfter, StageTasks: 40})
	due := time.Now()
	f.schedule(append(askMany(100, "clocked", "r", due), askMany(20, "orders", "o", due)...)...)
	f.eventually("the others are delivered", func() bool { return orders.count() == 20 })
	f.eventually("no line is held up", func() bool { return f.settledUpTo(due) })
	f.eventually("no body is kept", func() bool { return d.inside(func(in flight.Figures) int { return in.Claimed + in.StagedTasks }) == 0 })
	require.Less(t, d.producer().BufferedProduceRecords(), int64(2), "one at a time asks again")
	require.Equal(t, 1, d.inside(func(in flight.Figures) int { return in.ClockRefused }))
	dead, err := lettertest.All(t.Context(), letters.New(f.store), letters.Filter{})
	require.NoError(t, err)
	require.Empty(t, dead)
	f.passes(due.Add(silentAfter + 2*time.Second)) // in which a broker that says nothing would be found silent
	mend()
	clocked := f.read("clocked")
	f.eventually("all arrive", func() bool { return len(clocked.copies()) == 100 })
	require.Zero(t, counted(d.metrics.Unresponsive), "a broker that refuses answers")
}

// A name that somebody mistyped is forgotten by the producer too, which asked for it four times a second for ever. Should the topic come
// to be later, its tasks are delivered.
func TestMistypedNameIsForgotten(t *testing.T) {
	f := newFixture(t, 1, "orders")
	asked := f.cluster.Fault(kfake.Fault{Keys: []kmsg.Key{kmsg.Metadata}, Topic: "ordres", Observe: true, Count: -1})
	d := f.start(f.elect(5), t.TempDir(), Config{MemberID: "one", UndeliverableAfter: -1})
	due := time.Now()
	f.schedule(ask("ordres", "a", due))
	f.eventually("it is refused", func() bool {
		return f.settledUpTo(due) && counted(d.metrics.Dead.WithLabelValues(schemas.KindUndeliverable)) == 1
	})
	d.producers.forget([]string{"ordres"})
	hits, since := asked.Hits(), time.Now()
	f.eventually("nobody asks for it", func() bool {
		if n := asked.Hits(); n != hits {
			hits, since = n, time.Now()
		}
		return time.Since(since) > 3*time.Second
	})
	require.Equal(t, 1, d.flight.Figures().RefusedTargets, "for two minutes the dispatcher knows that it is missing")

	f.partitioned("ordres", 1)
	ordres := f.read("ordres")
	f.schedule(ask("ordres", "b", time.Now()))
	f.eventually("it arrives", func() bool { return ordres.count() == 1 })
}

// A topic that was written, and then refused for long, stays known to the producer: otherwise a broker would take what comes next for what it
// has, and acknowledge it without storing it.
func TestRefusedTopicThatWasWrittenTakesRecordsAgain(t *testing.T) {
	f := newFixture(t, 1, "orders")
	orders := f.read("orders")
	d := f.start(f.elect(5), t.TempDir(), Config{MemberID: "one", UndeliverableAfter: -1})
	f.schedule(ask("orders", "before", time.Now()))
	f.eventually("it arrives", func() bool { return orders.count() == 1 })

	refusal := f.cluster.Fault(kfake.Fault{Keys: []kmsg.Key{kmsg.Metadata}, Topic: "orders", Err: kerr.TopicAuthorizationFailed, Count: -1})
	d.producer().ForceMetadataRefresh() // as every five minutes
	f.eventually("the producer knows", func() bool { return refusal.Hits() > 1 })
	f.schedule(ask("orders", "refused", time.Now()))
	f.eventually("it is refused", func() bool { return counted(d.metrics.Dead.WithLabelValues(schemas.KindUndeliverable)) == 1 })
	d.producers.forget([]string{"orders"})
	refusal.Remove()

	var want []string
	for i := range 3 {
		want = append(want, fmt.Sprint("after ", i))
		f.schedule(ask("orders", want[i], time.Now()))
		f.eventually("it is delivered", func() bool { return counted(d.metrics.Delivered) == 2+i })
	}
	f.eventually("it is in the log", func() bool { return orders.count() == 4 })
	require.Equal(t, append([]string{"before"}, want...), orders.ids())
	require.Zero(t, counted(d.metrics.notStored))
}

// A producer that has forgotten what the broker remembers, for whatever reason: each task arrives all the same, once.
func TestAcknowledgementThatCannotBeTrue(t *testing.T) {
	f := newFixture(t, 1, "orders")
	orders, events := f.read("orders"), f.read(results)
	d := f.start(f.elect(5), t.TempDir(), Config{MemberID: "one"})
	var want []string
	deliver := func(id string) {
		want = append(want, id)
		f.schedule(ask("orders", id, time.Now()))
		f.eventually("it counts as delivered", func() bool { return len(events.events(t, schemas.StateSucceeded)) == len(want) })
	}
	for i := range 3 {
		deliver(fmt.Sprint("before ", i))
	}
	d.producer().PurgeTopicsFromProducing("orders")
	for i := range 6 {
		deliver(fmt.Sprint("after ", i))
	}
	f.eventually("all are in the log", func() bool { return orders.count() == len(want) })
	require.Equal(t, want, orders.ids())
	require.EqualValues(t, 3, counted(d.metrics.notStored), "the broker has only three to mistake one for")
}
