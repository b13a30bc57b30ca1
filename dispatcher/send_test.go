package dispatcher

import (
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"
	"go.uber.org/zap"

	"github.com/notyet/notyet/internal/kafka"
	"github.com/notyet/notyet/schemas"
	"github.com/notyet/notyet/store"
	"github.com/notyet/notyet/store/letters"
	"github.com/notyet/notyet/store/look"
	"github.com/notyet/notyet/test/lettertest"
	"github.com/notyet/notyet/test/recordtest"
)

func TestTooLateBecomesADeadLetter(t *testing.T) {
	f := newFixture(t, 2, "orders")
	orders, events := f.read("orders"), f.read(results)
	due := time.Now().Add(-10 * time.Second)
	f.schedule(
		ask("orders", "stale", due, schemas.HeaderMaxLateness, "5s"),
		ask("orders", "quiet", due, schemas.HeaderMaxLateness, "5s", schemas.HeaderEvents, "none"),
		ask("orders", "patient", due, schemas.HeaderMaxLateness, "1h", schemas.HeaderEvents, "all"),
		ask("orders", "eternal", due),
	)
	f.start(f.elect(5), t.TempDir(), Config{MemberID: "one"})
	f.eventually("the others are delivered", func() bool { return orders.count() == 2 })
	f.eventually("it is told", func() bool { return len(events.events(t, schemas.StateDead)) == 1 })
	require.Equal(t, map[string]int{"patient": 1, "eternal": 1}, orders.copies())
	dead, err := lettertest.All(t.Context(), letters.New(f.store), letters.Filter{})
	require.NoError(t, err)
	require.Len(t, dead, 2)
	for _, d := range dead {
		require.Equal(t, schemas.KindExpired, d.Kind)
		require.Equal(t, due.UnixMilli(), d.Due)
		require.Contains(t, d.Reason, "notyet-max-lateness 5s")
		body, err := schemas.DecodeBody(d.Body)
		require.NoError(t, err)
		require.Equal(t, "body of "+d.TaskID, string(body.Value))
		v, err := look.New(f.store).Get(t.Context(), "orders", d.TaskID)
		require.NoError(t, err)
		require.Equal(t, "dead", v.State)
	}
	told := events.events(t, schemas.StateDead)["stale"]
	require.Len(t, told, 1)
	require.Equal(t, "orders", told[0].Topic)
	require.Equal(t, due.UnixMilli(), told[0].Due)
	require.NotEmpty(t, told[0].Reason)
	require.Equal(t, schemas.KindExpired, told[0].Kind)
}

// TestRecordsCarryTheDatabasesTime: a machine whose clock is hours off delivers on time, and stamps deliveries and events by the database's.
func TestRecordsCarryTheDatabasesTime(t *testing.T) {
	for _, off := range []time.Duration{2 * time.Hour, -2 * time.Hour} {
		t.Run(off.String(), func(t *testing.T) {
			f := newFixture(t, 1, "orders")
			clock := func() time.Time { return time.Now().Add(off) }
			var err error
			f.store, err = store.Open(t.Context(), store.Config{DSN: "sqlite:" + f.path, Clock: clock}, zap.NewNop())
			require.NoError(t, err)
			t.Cleanup(func() { _ = f.store.Close() })
			orders, events := f.read("orders"), f.read(results)
			due := clock().Add(time.Second)
			f.start(f.elect(5), t.TempDir(), Config{MemberID: "one"})
			f.schedule(ask("orders", "a", due))
			f.eventually("it arrives", func() bool { return orders.count() == 1 && events.count() > 0 })
			for _, r := range append(orders.all(), events.all()...) {
				require.False(t, r.Timestamp.Before(due.Truncate(time.Millisecond)))
				require.False(t, r.Timestamp.After(clock()))
			}
		})
	}
}

func TestUnknownTargetBecomesADeadLetter(t *testing.T) {
	f := newFixture(t, 2, "orders")
	orders, events := f.read("orders"), f.read(results)
	due := time.Now()
	d := f.start(f.elect(5), t.TempDir(), Config{MemberID: "one", UndeliverableAfter: -1})
	f.schedule(ask("ordres", "mistyped", due), ask("orders", "right", due))
	f.eventually("the other is delivered", func() bool { return orders.count() == 1 })
	f.eventually("it is given up", func() bool {
		return f.settledUpTo(due) && counted(d.metrics.Dead.WithLabelValues(schemas.KindUndeliverable)) == 1
	})
	dead, err := lettertest.All(t.Context(), letters.New(f.store), letters.Filter{})
	require.NoError(t, err)
	require.Len(t, dead, 1)
	require.Equal(t, "mistyped", dead[0].TaskID)
	require.Equal(t, schemas.KindUndeliverable, dead[0].Kind)
	f.eventually("it is told", func() bool { return len(events.events(t, schemas.StateDead)) == 1 })
	require.Equal(t, schemas.KindUndeliverable, events.events(t, schemas.StateDead)["mistyped"][0].Kind)
	require.Equal(t, 1, counted(d.metrics.Dead.WithLabelValues(schemas.KindUndeliverable)))
}

// With room for few, the most urgent are read and sent first, though the others came before them.
func TestUrgentTasksGoFirst(t *testing.T) {
	f := newFixture(t, 1, "orders")
	orders := f.read("orders")
	due := time.Now().Add(-time.Second)
	var requests []*kgo.Record
	for _, class := range []string{"low", "normal", "high"} {
		requests = append(requests, askMany(20, "orders", class+"-", due, schemas.HeaderPriority, class)...)
	}
	f.schedule(requests...)
	f.start(f.elect(5), t.TempDir(), Config{MemberID: "one", StageTasks: 8})
	f.eventually("all arrive", func() bool { return orders.count() == 60 })
	for i, r := range orders.all() {
		class := []string{"high", "normal", "low"}[i/20]
		require.Equal(t, fmt.Sprintf("%s-%d", class, i%20), recordtest.Header(r, schemas.HeaderID), "and of each class in the order of their arrival")
	}
}

// cancel stores a cancel and requires that it is answered with cancelled.
func (f *fixture) cancel(topic, id string) {
	f.Helper()
	f.eventually("it is cancelled", func() bool { // a parked one may be tried just now
		done := f.schedule(&kgo.Record{Topic: "intake", Timestamp: time.Now(), Headers: []kgo.RecordHeader{
			{Key: schemas.HeaderOp, Value: []byte("cancel")}, {Key: schemas.HeaderTopic, Value: []byte(topic)}, {Key: schemas.HeaderID, Value: []byte(id)}}})
		return len(done.Events) == 1 && done.Events[0].Events[0].State == schemas.StateCancelled
	})
}

// fire stores a request to deliver each of so many tasks of askMany now.
func (f *fixture) fire(topic, prefix string, n int) {
	f.Helper()
	for i := range n {
		f.schedule(&kgo.Record{Topic: "intake", Timestamp: time.Now(), Headers: []kgo.RecordHeader{
			{Key: schemas.HeaderOp, Value: []byte("fire")}, {Key: schemas.HeaderTopic, Value: []byte(topic)}, {Key: schemas.HeaderID, Value: []byte(fmt.Sprint(prefix, i))}}})
	}
}

// A target that takes a record in the last moment of a question is heard: otherwise the record is
// written once more. One that says nothing ends the question.
func TestQuestionHearsAnAnswerUnderWay(t *testing.T) {
	const patience = 10 * time.Second
	for name, c := range map[string]struct {
		answers bool
		within  time.Duration
	}{"answered": {true, bound}, "never": {false, tick}} {
		t.Run(name, func(t *testing.T) {
			f := newFixture(t, 1, "orders")
			orders := f.read("orders")
			began, answer := time.Now(), make(chan struct{})
			f.cluster.ControlKey(int16(kmsg.Produce), func(kmsg.Request) (kmsg.Response, error, bool) {
				f.cluster.SleepControl(func() { <-answer })
				return nil, nil, false
			})
			client, err := kafka.NewSoloProducer(f.kafka, zap.NewNop())
			require.NoError(t, err)
			said := make(chan error, 1)
			go func() {
				_, err := produceWithin(t.Context(), client, &kgo.Record{Topic: "orders", Value: []byte("v")}, patience, c.within)
				said <- err
			}()
			f.passes(began.Add(patience + 10*tick))
			if c.answers {
				require.Empty(t, said, "it waits")
				close(answer)
				require.NoError(t, <-said)
				f.eventually("it is there", func() bool { return orders.count() == 1 })
				return
			}
			require.Error(t, <-said)
			close(answer)
		})
	}
}
