package consumer_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"
	"go.uber.org/goleak"

	"github.com/notyet/notyet/consumer"
	"github.com/notyet/notyet/schemas"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

const patience = time.Minute

// fake is a Kafka with one business topic of one partition, and a consumer's client.
type fake struct {
	t       *testing.T
	cluster *kfake.Cluster
	brokers kgo.Opt
	client  *kgo.Client
	reader  *kgo.Client
}

func newFake(t *testing.T) *fake {
	t.Helper()
	cluster, err := kfake.NewCluster(kfake.NumBrokers(1), kfake.SeedTopics(1, "orders", schemas.TopicReports))
	require.NoError(t, err)
	t.Cleanup(cluster.Close)
	f := &fake{t: t, cluster: cluster, brokers: kgo.SeedBrokers(cluster.ListenAddrs()...)}
	f.client = f.newClient(groupOpts()...)
	f.reader = f.newClient(kgo.ConsumeTopics(schemas.TopicReports), kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()))
	return f
}

func groupOpts() []kgo.Opt {
	return []kgo.Opt{
		kgo.ConsumerGroup("billing"), kgo.ConsumeTopics("orders"), kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()),
		kgo.DisableAutoCommit(), kgo.BlockRebalanceOnPoll(),
	}
}

func (f *fake) newClient(opts ...kgo.Opt) *kgo.Client {
	f.t.Helper()
	client, err := kgo.NewClient(append([]kgo.Opt{f.brokers}, opts...)...)
	require.NoError(f.t, err)
	f.t.Cleanup(client.CloseAllowingRebalance)
	return client
}

// deliver sends one record per "key=value" as notyet would, in one batch, with ids task-0, task-1 …
func (f *fake) deliver(messages ...string) {
	f.t.Helper()
	f.send(true, messages...)
}

func (f *fake) send(delivered bool, messages ...string) {
	f.t.Helper()
	var records []*kgo.Record
	for i, m := range messages {
		key, value, _ := strings.Cut(m, "=")
		r := &kgo.Record{Topic: "orders", Key: []byte(key), Value: []byte(value), Headers: []kgo.RecordHeader{{Key: "a"}}}
		if delivered {
			id := fmt.Sprintf("task-%d", i)
			r.Headers = schemas.AppendDelivery(r.Headers, schemas.Delivery{ID: id, Due: 1, Attempt: 1, Key: "key-" + id})
		}
		records = append(records, r)
	}
	require.NoError(f.t, f.reader.ProduceSync(f.t.Context(), records...).FirstErr())
}

// run runs a consumer until the test stops it. The channel returns its result.
func (f *fake) run(c consumer.Config, handle consumer.Handler) (stop context.CancelFunc, result chan error) {
	f.t.Helper()
	cons, err := consumer.New(f.client, c)
	require.NoError(f.t, err)
	ctx, cancel := context.WithCancel(f.t.Context())
	f.t.Cleanup(cancel)
	result = make(chan error, 1)
	go func() { result <- cons.Run(ctx, handle) }()
	return cancel, result
}

func (f *fake) await(result chan error) error {
	f.t.Helper()
	select {
	case err := <-result:
		return err
	case <-time.After(patience):
		f.t.Fatal("Run has not ended")
		return nil
	}
}

// reports waits for n reports and returns them by id.
func (f *fake) reports(n int) map[string]schemas.Report {
	f.t.Helper()
	ctx, cancel := context.WithTimeout(f.t.Context(), patience)
	defer cancel()
	out := map[string]schemas.Report{}
	for len(out) < n {
		fetches := f.reader.PollFetches(ctx)
		require.NoError(f.t, fetches.Err())
		fetches.EachRecord(func(r *kgo.Record) {
			report, err := schemas.DecodeReport(r)
			require.NoError(f.t, err)
			out[report.ID] = report
		})
	}
	return out
}

// committed returns the group's offset in the partition. -1: none, or the consumer has not joined
// yet.
func (f *fake) committed() int64 {
	f.t.Helper()
	offsets, err := kadm.NewClient(f.reader).FetchOffsets(f.t.Context(), "billing")
	if errors.Is(err, kerr.GroupIDNotFound) {
		return -1
	}
	require.NoError(f.t, err)
	o, ok := offsets.Lookup("orders", 0)
	if !ok {
		return -1
	}
	return o.At
}

func (f *fake) awaitCommitted(offset int64) {
	f.t.Helper()
	require.Eventually(f.t, func() bool { return f.committed() == offset }, patience, 10*time.Millisecond)
}

func TestOutcomes(t *testing.T) {
	f := newFake(t)
	f.deliver("a=ok", "b=error", "c=later", "d=fail", "e=panic", "f=joined", "g=snooze", "h=both")
	var mu sync.Mutex
	failures := map[string]error{}
	stop, result := f.run(consumer.Config{OnError: func(m consumer.Message, err error) {
		mu.Lock()
		defer mu.Unlock()
		failures[m.Delivery.ID] = err
	}}, func(_ context.Context, m consumer.Message) error {
		if len(m.Headers) != 1 || m.Headers[0].Key != "a" || m.Delivery.Attempt != 1 {
			return errors.New("not the business's headers")
		}
		switch string(m.Record.Value) {
		case "error":
			return errors.New("busy")
		case "later":
			return fmt.Errorf("wrapped: %w", consumer.RetryAfter(1500*time.Microsecond, nil))
		case "snooze":
			return fmt.Errorf("wrapped: %w", consumer.Snooze(-1, nil))
		case "both":
			return errors.Join(consumer.RetryAfter(time.Hour, errors.New("x")), consumer.Snooze(time.Minute, errors.New("y")))
		case "fail":
			return consumer.Fail(errors.New("no such customer"))
		case "panic":
			panic("oh")
		case "joined":
			return errors.Join(consumer.RetryAfter(-1, errors.New("x")), consumer.Fail(nil))
		}
		return nil
	})
	got := f.reports(8)
	report := func(id string, s schemas.Status, after time.Duration, text string) {
		require.Equal(t, schemas.Report{Topic: "orders", ID: id, Attempt: 1, Status: s, RetryAfter: after, Error: text, Delivery: got[id].Delivery}, got[id])
		require.NotEmpty(t, got[id].Delivery)
	}
	report("task-0", schemas.StatusOK, schemas.NoRetryAfter, "")
	report("task-1", schemas.StatusRetry, schemas.NoRetryAfter, "busy")
	report("task-2", schemas.StatusRetry, 2*time.Millisecond, "wrapped: retry")
	report("task-3", schemas.StatusFail, schemas.NoRetryAfter, "no such customer")
	report("task-4", schemas.StatusRetry, schemas.NoRetryAfter, "panic: oh")
	report("task-5", schemas.StatusFail, schemas.NoRetryAfter, "x\nfailed")
	report("task-6", schemas.StatusSnooze, 0, "wrapped: snoozed")
	report("task-7", schemas.StatusSnooze, time.Minute, "x\ny")
	f.awaitCommitted(8)
	stop()
	require.NoError(t, f.await(result))

	require.Len(t, failures, 7)
	var panicked *consumer.PanicError
	require.ErrorAs(t, failures["task-4"], &panicked)
	require.Contains(t, string(panicked.Stack), "consumer_test.go")
}

// TestOrderAndConcurrency: two keys run concurrently, one key's messages one after the other.
func TestOrderAndConcurrency(t *testing.T) {
	f := newFake(t)
	f.deliver("a=1", "a=2", "b=1", "a=3", "b=2", "b=3")
	var mu sync.Mutex
	order, running, most := map[string]string{}, map[string]int{}, 0
	both := make(chan struct{}) // closed when both keys have been at work at once
	meet := sync.OnceFunc(func() { close(both) })
	_, _ = f.run(consumer.Config{Concurrency: 2}, func(ctx context.Context, m consumer.Message) error {
		key := string(m.Record.Key)
		mu.Lock()
		running[key]++
		most = max(most, running[key])
		order[key] += string(m.Record.Value)
		if running["a"] > 0 && running["b"] > 0 {
			meet()
		}
		mu.Unlock()
		<-both
		mu.Lock()
		defer mu.Unlock()
		running[key]--
		return nil
	})
	f.awaitCommitted(6)
	require.Equal(t, map[string]string{"a": "123", "b": "123"}, order)
	require.Equal(t, 1, most)
}

// TestForeignMessages: a message that notyet did not deliver is handled without a report. An error
// stops the consumer before the message is committed.
func TestForeignMessages(t *testing.T) {
	f := newFake(t)
	f.send(false, "a=1", "a=2", "a=bad", "a=3")
	_, result := f.run(consumer.Config{}, func(_ context.Context, m consumer.Message) error {
		require.Nil(t, m.Delivery)
		if string(m.Record.Value) == "bad" {
			return errors.New("broken")
		}
		return nil
	})
	require.EqualError(t, f.await(result), "handling orders/0 at offset 2: broken")
	require.EqualValues(t, 2, f.committed())
	offsets, err := kadm.NewClient(f.reader).ListEndOffsets(t.Context(), schemas.TopicReports)
	require.NoError(t, err)
	end, _ := offsets.Lookup(schemas.TopicReports, 0)
	require.Zero(t, end.Offset, "no report")
}

// TestReportRefused: a message whose report is not acknowledged is not committed.
func TestReportRefused(t *testing.T) {
	f := newFake(t)
	f.deliver("a=1")
	f.cluster.Fault(kfake.Fault{Keys: []kmsg.Key{kmsg.Produce}, Topic: schemas.TopicReports, Err: kerr.TopicAuthorizationFailed, Count: -1})
	_, result := f.run(consumer.Config{}, func(context.Context, consumer.Message) error { return nil })
	err := f.await(result)
	require.ErrorIs(t, err, kerr.TopicAuthorizationFailed)
	require.ErrorContains(t, err, "reporting ok of task-0")
	require.EqualValues(t, -1, f.committed())
}

// TestCommitAfterRebalance: a commit that comes after a rebalance causes duplicates and does not
// stop the consumer.
func TestCommitAfterRebalance(t *testing.T) {
	f := newFake(t)
	f.deliver("a=1")
	f.cluster.Fault(kfake.Fault{Keys: []kmsg.Key{kmsg.OffsetCommit}, Err: kerr.IllegalGeneration, Count: 1})
	heard := make(chan error, 10)
	f.run(consumer.Config{OnError: func(_ consumer.Message, err error) { heard <- err }},
		func(context.Context, consumer.Message) error { return nil })
	require.ErrorIs(t, <-heard, kerr.IllegalGeneration)
	f.deliver("a=2")
	f.awaitCommitted(2)
}

func TestCommitRefused(t *testing.T) {
	f := newFake(t)
	f.deliver("a=1")
	f.cluster.Fault(kfake.Fault{Keys: []kmsg.Key{kmsg.OffsetCommit}, Err: kerr.GroupAuthorizationFailed, Count: -1})
	_, result := f.run(consumer.Config{}, func(context.Context, consumer.Message) error { return nil })
	require.ErrorIs(t, f.await(result), kerr.GroupAuthorizationFailed)
}

// TestDrain: what has started is finished, reported and committed; the rest comes again.
func TestDrain(t *testing.T) {
	f := newFake(t)
	f.deliver("a=1", "a=2", "a=3")
	started, finish := make(chan struct{}), make(chan struct{})
	stop, result := f.run(consumer.Config{}, func(ctx context.Context, _ consumer.Message) error {
		close(started) // a second call would panic, and be reported
		<-finish
		return ctx.Err()
	})
	<-started
	stop()
	close(finish)
	require.NoError(t, f.await(result))
	require.Equal(t, schemas.StatusOK, f.reports(1)["task-0"].Status)
	require.EqualValues(t, 1, f.committed())
}

// TestDrainTimeout: a handler that is cut off is not reported, so that the shutdown uses up no
// attempt.
func TestDrainTimeout(t *testing.T) {
	f := newFake(t)
	f.deliver("a=quick", "a=slow")
	started := make(chan struct{})
	stop, result := f.run(consumer.Config{DrainTimeout: 500 * time.Millisecond}, func(ctx context.Context, m consumer.Message) error {
		if string(m.Record.Value) == "quick" {
			return nil
		}
		close(started)
		<-ctx.Done()
		return ctx.Err()
	})
	<-started
	require.Equal(t, schemas.StatusOK, f.reports(1)["task-0"].Status)
	stop()
	require.NoError(t, f.await(result))
	require.EqualValues(t, 1, f.committed())
}

func TestClientClosed(t *testing.T) {
	f := newFake(t)
	_, result := f.run(consumer.Config{}, func(context.Context, consumer.Message) error { return nil })
	f.client.CloseAllowingRebalance()
	require.ErrorIs(t, f.await(result), kgo.ErrClientClosed)
}

func TestNewRefusesUnsafeClients(t *testing.T) {
	f := newFake(t)
	for name, opts := range map[string][]kgo.Opt{
		"ConsumerGroup":        {kgo.ConsumeTopics("orders")},
		"DisableAutoCommit":    {kgo.ConsumeTopics("orders"), kgo.ConsumerGroup("g"), kgo.BlockRebalanceOnPoll()},
		"BlockRebalanceOnPoll": {kgo.ConsumeTopics("orders"), kgo.ConsumerGroup("g"), kgo.DisableAutoCommit()},
	} {
		_, err := consumer.New(f.newClient(opts...), consumer.Config{})
		require.ErrorContains(t, err, "the client lacks kgo.")
		if name != "ConsumerGroup" { // without a group all three are missing
			require.ErrorContains(t, err, name)
		}
	}
	_, err := consumer.New(f.client, consumer.Config{MaxPoll: -1})
	require.ErrorContains(t, err, "negative")
}
