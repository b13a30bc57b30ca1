package producer_test

import (
	"context"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/notyet/notyet/producer"
	"github.com/notyet/notyet/schemas"
)

// fake is a Kafka with an intake topic, a client, and what has been sent to it.
type fake struct {
	*producer.Producer
	cluster *kfake.Cluster
	client  *kgo.Client
	reader  *kgo.Client
}

func newFake(t *testing.T, opts ...kgo.Opt) fake {
	t.Helper()
	cluster, err := kfake.NewCluster(kfake.NumBrokers(1), kfake.SeedTopics(3, schemas.TopicIntake))
	require.NoError(t, err)
	t.Cleanup(cluster.Close)
	brokers := kgo.SeedBrokers(cluster.ListenAddrs()...)
	client, err := kgo.NewClient(append([]kgo.Opt{brokers}, opts...)...)
	require.NoError(t, err)
	t.Cleanup(client.Close)
	reader, err := kgo.NewClient(brokers, kgo.ConsumeTopics(schemas.TopicIntake), kgo.FetchIsolationLevel(kgo.ReadCommitted()),
		kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()))
	require.NoError(t, err)
	t.Cleanup(reader.Close)
	return fake{producer.New(client, producer.Config{}), cluster, client, reader}
}

// requests reads n requests as the scanner would.
func (f fake) requests(t *testing.T, n int) []schemas.Request {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	var out []schemas.Request
	for len(out) < n {
		fetches := f.reader.PollFetches(ctx)
		require.NoError(t, fetches.Err())
		fetches.EachRecord(func(r *kgo.Record) {
			request, err := schemas.Decode(r, schemas.Limits{})
			require.NoError(t, err)
			out = append(out, request)
		})
	}
	require.Len(t, out, n)
	return out
}

func TestScheduleCancelFire(t *testing.T) {
	f := newFake(t)
	at := time.Now().Add(time.Hour).Truncate(time.Millisecond).Add(time.Nanosecond)
	settings := schemas.DefaultSettings()
	settings.Ack = schemas.AckReport
	ref, err := f.Schedule(t.Context(), producer.Task{
		Topic: "orders", ID: "order-1", At: at, Key: []byte("k"), Value: []byte("v"),
		Headers: []kgo.RecordHeader{{Key: "a"}}, Version: new(int64(7)), Settings: &settings,
	})
	require.NoError(t, err)
	require.Equal(t, producer.Ref{Topic: "orders", ID: "order-1", Key: []byte("k")}, ref)
	require.NoError(t, f.Fire(t.Context(), ref))
	ref.Version = new(int64(8))
	require.NoError(t, f.Cancel(t.Context(), ref))
	require.NoError(t, f.Stop(t.Context(), ref))

	got := f.requests(t, 4) // one key, one partition: in order
	require.Equal(t, at.UnixMilli()+1, got[0].Due, "rounded up")
	require.Equal(t, settings, got[0].Settings)
	require.EqualValues(t, 7, got[0].Version)
	require.Equal(t, []kgo.RecordHeader{{Key: "a"}}, got[0].Headers)
	require.Equal(t, schemas.OpFire, got[1].Op)
	require.Equal(t, schemas.NoVersion, got[1].Version)
	require.Equal(t, schemas.OpCancel, got[2].Op)
	require.EqualValues(t, 8, got[2].Version)
	require.Equal(t, schemas.OpStop, got[3].Op)
	require.EqualValues(t, 8, got[3].Version)
	for _, r := range got {
		require.Equal(t, "order-1", r.ID)
		require.Equal(t, []byte("k"), r.Key)
	}
}

func TestScheduleWithoutID(t *testing.T) {
	f := newFake(t)
	refs, err := f.ScheduleBatch(t.Context(),
		producer.Task{Topic: "orders", Delay: time.Minute, Key: []byte("a")},
		producer.Task{Topic: "orders", Delay: time.Minute, Key: []byte("b")},
		producer.Task{Topic: "orders", Delay: time.Minute, ID: "mine"},
	)
	require.NoError(t, err)
	byID := map[string]schemas.Request{}
	for _, r := range f.requests(t, 3) {
		require.Equal(t, r.Accepted+60000, r.Due)
		byID[r.ID] = r
	}
	require.Equal(t, "a", string(byID[refs[0].ID].Key), "the ref has the id that the scanner gives")
	require.Equal(t, "b", string(byID[refs[1].ID].Key))
	require.Contains(t, byID, "mine")
}

func TestMistakesAreNotSent(t *testing.T) {
	f := newFake(t)
	for _, c := range []struct {
		task producer.Task
		want string
	}{
		{producer.Task{Topic: "orders"}, "exactly one of At and Delay"},
		{producer.Task{Topic: "orders", At: time.Unix(0, 0), Delay: 1}, "exactly one of At and Delay"},
		{producer.Task{Topic: "orders", Delay: -1}, "is negative"},
		{producer.Task{Delay: 1}, "notyet-topic"},
		{producer.Task{Topic: "orders", Delay: 1, Version: new(int64(-1))}, "notyet-version"},
		{producer.Task{Topic: "orders", Delay: 1, Settings: &schemas.Settings{}}, "notyet-ack-timeout"},
		{producer.Task{Topic: "orders", At: time.Date(12026, 1, 1, 0, 0, 0, 0, time.UTC)}, "notyet-at"},
	} {
		_, err := f.Records(c.task)
		require.ErrorContains(t, err, c.want, "%+v", c.task)
		_, err = f.ScheduleBatch(t.Context(), producer.Task{Topic: "orders", Delay: time.Second}, c.task)
		var rejection *schemas.Rejection
		require.ErrorAs(t, err, &rejection)
	}
	require.ErrorContains(t, f.Cancel(t.Context(), producer.Ref{Topic: "orders"}), "needs the id")
	_, err := f.Schedule(t.Context(), producer.Task{Topic: "orders", ID: "only", Delay: time.Second})
	require.NoError(t, err)
	require.Equal(t, "only", f.requests(t, 1)[0].ID)
}

// TestGivingUpWaiting: a caller that stops waiting gets ErrUnknownOutcome; neither its own request
// nor others' are dropped.
func TestGivingUpWaiting(t *testing.T) {
	f := newFake(t)
	asked, answer := make(chan struct{}), make(chan struct{})
	f.cluster.ControlKey(int16(kmsg.Produce), func(kmsg.Request) (kmsg.Response, error, bool) {
		close(asked)
		f.cluster.SleepControl(func() { <-answer })
		return nil, nil, false
	})
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() {
		_, err := f.Schedule(ctx, producer.Task{Topic: "orders", ID: "order-1", Delay: time.Minute})
		done <- err
	}()
	<-asked
	cancel()
	err := <-done
	require.ErrorIs(t, err, producer.ErrUnknownOutcome)
	require.ErrorIs(t, err, context.Canceled)
	close(answer)
	require.Equal(t, "order-1", f.requests(t, 1)[0].ID)

	_, err = f.Schedule(ctx, producer.Task{Topic: "orders", ID: "order-2", Delay: time.Minute})
	require.ErrorIs(t, err, context.Canceled)
	require.NotErrorIs(t, err, producer.ErrUnknownOutcome, "nothing was sent")
}

func TestPartialFailure(t *testing.T) {
	f := newFake(t, kgo.RecordPartitioner(kgo.ManualPartitioner()))
	p := producer.New(f.client, producer.Config{Intake: "missing"})
	_, err := p.Schedule(t.Context(), producer.Task{Topic: "orders", ID: "x", Delay: time.Minute})
	require.ErrorIs(t, err, kerr.UnknownTopicOrPartition)
	require.ErrorContains(t, err, "scheduling task 0 for orders")

	f.cluster.Fault(kfake.Fault{Keys: []kmsg.Key{kmsg.Produce}, Err: kerr.MessageTooLarge, Count: 1})
	refs, err := f.ScheduleBatch(t.Context(), producer.Task{Topic: "orders", ID: "x", Delay: time.Minute})
	require.ErrorIs(t, err, kerr.MessageTooLarge)
	require.Equal(t, []producer.Ref{{}}, refs)
}

// TestOwnTransaction: requests of an aborted transaction do not count.
func TestOwnTransaction(t *testing.T) {
	f := newFake(t, kgo.TransactionalID("orders-service"))
	ends := []kgo.TransactionEndTry{kgo.TryAbort, kgo.TryCommit}
	for i, id := range []string{"aborted", "committed"} {
		require.NoError(t, f.client.BeginTransaction())
		records, err := f.Records(producer.Task{Topic: "orders", ID: id, Delay: time.Minute, Key: []byte("k")})
		require.NoError(t, err)
		cancels, err := f.CancelRecords(producer.Ref{Topic: "reminders", ID: id + "-1", Key: []byte("k")}, producer.Ref{Topic: "reminders", ID: id + "-2", Key: []byte("k")})
		require.NoError(t, err)
		stops, err := f.StopRecords(producer.Ref{Topic: "invoices", ID: id + "-s", Key: []byte("k")})
		require.NoError(t, err)
		fires, err := f.FireRecords(producer.Ref{Topic: "invoices", ID: id, Key: []byte("k"), Version: new(int64(3))})
		require.NoError(t, err)
		require.NoError(t, f.client.ProduceSync(t.Context(), slices.Concat(records, cancels, stops, fires)...).FirstErr())
		require.NoError(t, f.client.EndTransaction(t.Context(), ends[i]))
	}
	var got []string
	for _, r := range f.requests(t, 5) {
		got = append(got, r.Op.String()+" "+r.Topic+" "+r.ID)
	}
	require.Equal(t, []string{"schedule orders committed", "cancel reminders committed-1", "cancel reminders committed-2", "stop invoices committed-s", "fire invoices committed"}, got)
	_, err := f.CancelRecords(producer.Ref{Topic: "reminders", ID: "x"}, producer.Ref{Topic: "reminders"})
	require.ErrorContains(t, err, "asking to cancel task 1")
}

// TestSettings: every setting arrives as it was given.
func TestSettings(t *testing.T) {
	change := func(f func(*schemas.Settings)) schemas.Settings {
		s := schemas.DefaultSettings()
		f(&s)
		return s
	}
	f := newFake(t)
	want := map[string]schemas.Settings{
		"merge last": change(func(s *schemas.Settings) { s.IfExists = schemas.Merge }),
		"merge sum": change(func(s *schemas.Settings) {
			s.IfExists, s.Merge, s.MaxWait = schemas.Merge, schemas.MergeSum, time.Minute
		}),
		"merge append": change(func(s *schemas.Settings) { s.IfExists, s.Merge = schemas.Merge, schemas.MergeAppend }),
		"keep":         change(func(s *schemas.Settings) { s.IfExists = schemas.Keep }),
		"high":         change(func(s *schemas.Settings) { s.Priority = schemas.PriorityHigh }),
		"low":          change(func(s *schemas.Settings) { s.Priority = schemas.PriorityLow }),
		"report": change(func(s *schemas.Settings) {
			s.Ack, s.AckTimeout, s.MaxAttempts = schemas.AckReport, 90*time.Second, 3
			s.Backoff = schemas.Backoff{Exponential: true, First: time.Second, Max: time.Hour}
		}),
		"steps":      change(func(s *schemas.Settings) { s.Backoff = schemas.BackoffSteps(5*time.Second, 5*time.Minute) }),
		"lateness":   change(func(s *schemas.Settings) { s.MaxLateness = 36 * time.Hour }),
		"tag":        change(func(s *schemas.Settings) { s.Tag = "vip,shop:7" }),
		"all events": change(func(s *schemas.Settings) { s.Events = schemas.EventsAll }),
		"no events":  change(func(s *schemas.Settings) { s.Events = schemas.EventsNone }),
	}
	var tasks []producer.Task
	for id, s := range want {
		tasks = append(tasks, producer.Task{Topic: "orders", ID: id, Delay: time.Minute, Value: []byte("{}"), Settings: &s})
	}
	_, err := f.ScheduleBatch(t.Context(), tasks...)
	require.NoError(t, err)
	for _, r := range f.requests(t, len(want)) {
		require.Equal(t, want[r.ID], r.Settings, r.ID)
	}
}
