package consumer_test

import (
	"context"
	"errors"
	"math"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/notyet/notyet/consumer"
	"github.com/notyet/notyet/schemas"
	"github.com/notyet/notyet/test/recordtest"
)

// retries is a fake with an intake and a dead topic beside, and a reader of both.
type retries struct {
	*fake
	out *kgo.Client
}

func newRetries(t *testing.T) retries {
	f := newFake(t)
	_, err := kadm.NewClient(f.reader).CreateTopics(t.Context(), 1, 1, nil, schemas.TopicIntake, "orders.dead")
	require.NoError(t, err)
	return retries{f, f.newClient(kgo.ConsumeTopics(schemas.TopicIntake, "orders.dead"), kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()))}
}

func (r retries) retrier(c consumer.RetrierConfig) *consumer.Retrier {
	c.DeadTopic = "orders.dead"
	retrier, err := consumer.NewRetrier(r.reader, c)
	require.NoError(r.t, err)
	return retrier
}

// next is what was republished next: a record of the intake or of the dead topic.
func (r retries) next() *kgo.Record {
	r.t.Helper()
	ctx, cancel := context.WithTimeout(r.t.Context(), patience)
	defer cancel()
	for {
		fetches := r.out.PollRecords(ctx, 1)
		require.NoError(r.t, fetches.Err())
		if records := fetches.Records(); len(records) > 0 {
			return records[0]
		}
	}
}

// request is next, read as the scanner reads it.
func (r retries) request() schemas.Request {
	r.t.Helper()
	rec := r.next()
	require.Equal(r.t, schemas.TopicIntake, rec.Topic)
	request, err := schemas.Decode(rec, schemas.Limits{})
	require.NoError(r.t, err)
	return request
}

// redeliver does what notyet does when the request is due.
func (r retries) redeliver(q schemas.Request) {
	r.t.Helper()
	rec := &kgo.Record{Topic: q.Topic, Key: q.Key, Value: q.Value}
	rec.Headers = schemas.AppendDelivery(q.Headers, schemas.Delivery{ID: q.ID, Due: q.Due, Attempt: 1, Key: "key-" + q.ID})
	require.NoError(r.t, r.reader.ProduceSync(r.t.Context(), rec).FirstErr())
}

// TestRetrierRounds: a record that notyet never saw is handled three times, with pauses, and then
// given up.
func TestRetrierRounds(t *testing.T) {
	f := newRetries(t)
	retrier := f.retrier(consumer.RetrierConfig{MaxAttempts: 3, Backoff: schemas.Backoff{First: 5 * time.Second, Max: 5 * time.Second}})
	foreign := &kgo.Record{Topic: "orders", Key: []byte("k"), Value: []byte("v"), Headers: recordtest.Headers("a", "1", "b", "\xff", "a", "2")}
	require.NoError(t, f.reader.ProduceSync(t.Context(), foreign).FirstErr())
	attempts := make(chan int, 10)
	f.run(consumer.Config{}, retrier.Wrap(func(_ context.Context, m consumer.Message) error {
		attempts <- retrier.Attempt(m.Record)
		return errors.New("busy " + strconv.Itoa(retrier.Attempt(m.Record)))
	}))

	for round := 1; round <= 2; round++ {
		require.Equal(t, round, receive(t, attempts))
		q := f.request()
		require.Equal(t, "orders", q.Topic)
		require.Equal(t, q.Accepted+5000, q.Due)
		require.Equal(t, schemas.EventsNone, q.Settings.Events)
		require.Equal(t, schemas.AckNone, q.Settings.Ack)
		require.True(t, strings.HasPrefix(q.ID, "retry/orders/0/"+strconv.Itoa(round-1)+"@"), q.ID)
		require.Equal(t, "k", string(q.Key))
		require.Equal(t, "v", string(q.Value))
		require.Equal(t, recordtest.Headers("a", "1", "b", "\xff", "a", "2",
			"retry-attempt", strconv.Itoa(round+1), "retry-origin", "orders/0/0", "retry-error", "busy "+strconv.Itoa(round)), q.Headers)
		f.awaitCommitted(int64(round))
		f.redeliver(q)
	}
	require.Equal(t, 3, receive(t, attempts))
	dead := f.next()
	require.Equal(t, "orders.dead", dead.Topic)
	require.Equal(t, "k", string(dead.Key))
	require.Equal(t, "v", string(dead.Value))
	require.Equal(t, recordtest.Headers("a", "1", "b", "\xff", "a", "2",
		"retry-attempt", "3", "retry-origin", "orders/0/0", "retry-error", "busy 3"), dead.Headers)
	f.awaitCommitted(3)
}

// TestRetrierVerdicts: what an error says about the next attempt.
func TestRetrierVerdicts(t *testing.T) {
	f := newRetries(t)
	retrier := f.retrier(consumer.RetrierConfig{Topic: "orders.retry", Prefix: "x-"})
	rec := &kgo.Record{Topic: "orders", Partition: 3, Offset: 7, Timestamp: time.UnixMilli(1790000000000)}

	require.NoError(t, retrier.Later(t.Context(), rec, consumer.RetryAfter(1500*time.Microsecond, errors.New("later"))))
	first := f.request()
	require.Equal(t, first.Accepted+2, first.Due)
	require.Equal(t, "orders.retry", first.Topic)
	require.Equal(t, "retry/orders/3/7@1790000000000", first.ID)
	require.Nil(t, first.Key)
	require.Nil(t, first.Value, "a tombstone stays one")
	require.Equal(t, recordtest.Headers("x-attempt", "2", "x-origin", "orders/3/7", "x-error", "later"), first.Headers)

	require.NoError(t, retrier.Later(t.Context(), rec, nil))
	again := f.request()
	require.Equal(t, first.ID, again.ID, "replaces the first one")
	require.Equal(t, schemas.Replace, again.Settings.IfExists)

	require.NoError(t, retrier.Later(t.Context(), rec, consumer.RetryAfter(0, nil)))
	now := f.request()
	require.LessOrEqual(t, now.Due, now.Accepted+1)

	require.NoError(t, retrier.Later(t.Context(), rec, consumer.Fail(errors.New(strings.Repeat("é", 4000)))))
	dead := f.next()
	require.Equal(t, "orders.dead", dead.Topic)
	require.Nil(t, dead.Value)
	require.Equal(t, recordtest.Headers("x-attempt", "1", "x-origin", "orders/3/7", "x-error", strings.Repeat("é", 2048)), dead.Headers)
}

// TestRetrierHeaders: notyet's headers of the last delivery do not make the next request a bad one,
// and damaged history is a first attempt.
func TestRetrierHeaders(t *testing.T) {
	f := newRetries(t)
	retrier := f.retrier(consumer.RetrierConfig{})
	rec := &kgo.Record{Topic: strings.Repeat("t", 249), Headers: recordtest.Headers("notyet-id", "x", "Notyet-Due", "1", "notyet-new", "2", "mine", "3",
		"retry-attempt", "many", "retry-attempt", "-1", "retry-error", "old")}
	require.Equal(t, 1, retrier.Attempt(rec))
	require.NoError(t, retrier.Later(t.Context(), rec, errors.New("busy")))
	q := f.request()
	require.Equal(t, recordtest.Headers("mine", "3", "retry-attempt", "2", "retry-origin", rec.Topic+"/0/0", "retry-error", "busy"), q.Headers)
	require.Len(t, q.ID, len("retry/")+64, "a hash, as the name is too long")
}

// TestRetrierBackoff: exponential pauses double up to Max, each between half of it and all.
func TestRetrierBackoff(t *testing.T) {
	f := newRetries(t)
	for _, c := range []struct {
		max     time.Duration
		attempt int
		want    time.Duration
	}{
		{10 * time.Second, 1, time.Second}, {10 * time.Second, 2, 2 * time.Second}, {10 * time.Second, 4, 8 * time.Second},
		{10 * time.Second, 5, 10 * time.Second}, {10 * time.Second, 99, 10 * time.Second}, {time.Second, 3, time.Second},
		{math.MaxInt64 / 1000, 99, math.MaxInt64 / 1000},
	} {
		retrier := f.retrier(consumer.RetrierConfig{MaxAttempts: 100, Backoff: schemas.Backoff{Exponential: true, First: time.Second, Max: c.max}})
		rec := &kgo.Record{Topic: "orders", Headers: recordtest.Headers("retry-attempt", strconv.Itoa(c.attempt))}
		require.NoError(t, retrier.Later(t.Context(), rec, nil))
		q, err := schemas.Decode(f.next(), schemas.Limits{MaxDelay: math.MaxInt64})
		require.NoError(t, err)
		pause := time.Duration(q.Due-q.Accepted) * time.Millisecond
		require.LessOrEqual(t, pause, c.want+time.Millisecond)
		require.GreaterOrEqual(t, pause, c.want/2)
	}
}

// TestRetrierLeavesTasksAlone: another program's task keeps its own retries.
func TestRetrierLeavesTasksAlone(t *testing.T) {
	f := newRetries(t)
	f.deliver("a=1")
	f.run(consumer.Config{}, f.retrier(consumer.RetrierConfig{}).Wrap(func(context.Context, consumer.Message) error {
		panic("oh")
	}))
	require.Equal(t, schemas.StatusRetry, f.reports(1)["task-0"].Status)
	f.awaitCommitted(1)
	ends, err := kadm.NewClient(f.reader).ListEndOffsets(t.Context(), schemas.TopicIntake)
	require.NoError(t, err)
	end, _ := ends.Lookup(schemas.TopicIntake, 0)
	require.Zero(t, end.Offset)
}

// TestRetrierRefused: a retried record whose next request is refused is not committed, though
// notyet delivered it and would not deliver it again.
func TestRetrierRefused(t *testing.T) {
	f := newRetries(t)
	f.cluster.Fault(kfake.Fault{Keys: []kmsg.Key{kmsg.Produce}, Topic: schemas.TopicIntake, Err: kerr.TopicAuthorizationFailed, Count: -1})
	q := schemas.NewRequest(schemas.OpSchedule, "orders", "x")
	q.Headers = recordtest.Headers("retry-attempt", "2")
	f.redeliver(q)
	var heard []int
	retrier := f.retrier(consumer.RetrierConfig{OnError: func(_ *kgo.Record, attempt int, _ error) { heard = append(heard, attempt) }})
	_, result := f.run(consumer.Config{}, retrier.Wrap(func(context.Context, consumer.Message) error { return errors.New("busy") }))
	err := f.await(result)
	require.ErrorIs(t, err, kerr.TopicAuthorizationFailed)
	require.ErrorContains(t, err, "retrying orders/0 at offset 0 through notyet.intake")
	require.Equal(t, []int{2}, heard)
	require.EqualValues(t, -1, f.committed())
}

// TestStop: a delivery whose handler returns Stop is neither reported nor committed.
func TestStop(t *testing.T) {
	f := newRetries(t)
	f.deliver("a=1")
	gone := errors.New("database gone")
	_, result := f.run(consumer.Config{}, f.retrier(consumer.RetrierConfig{}).Wrap(func(context.Context, consumer.Message) error {
		return consumer.Stop(gone)
	}))
	require.ErrorIs(t, f.await(result), gone)
	require.EqualValues(t, -1, f.committed())
}

func TestNewRetrierRefuses(t *testing.T) {
	for want, c := range map[string]consumer.RetrierConfig{
		`DeadTopic ""`: {}, `Topic "a b"`: {DeadTopic: "d", Topic: "a b"}, "MaxAttempts": {DeadTopic: "d", MaxAttempts: -1},
		"Backoff": {DeadTopic: "d", Backoff: schemas.Backoff{Exponential: true, First: 2, Max: 1}}, "notyet's own": {DeadTopic: "d", Prefix: "NotYet-x-"},
	} {
		_, err := consumer.NewRetrier(nil, c)
		require.ErrorContains(t, err, want)
	}
}
