package consumer_test

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/notyet/notyet/consumer"
	"github.com/notyet/notyet/schemas"
)

// receive waits for a handler's signal.
func receive[T any](t *testing.T, c <-chan T) T {
	t.Helper()
	select {
	case v := <-c:
		return v
	case <-time.After(patience):
		t.Fatal("nothing has come")
		panic("unreachable")
	}
}

// TestPoisonMessages: a key whose every message panics does not hold up another.
func TestPoisonMessages(t *testing.T) {
	f := newFake(t)
	f.deliver("bad=1", "bad=2", "good=1", "bad=3", "good=2")
	f.run(consumer.Config{Concurrency: 1}, func(_ context.Context, m consumer.Message) error {
		if string(m.Record.Key) == "bad" {
			panic("poison")
		}
		return nil
	})
	reports := f.reports(5)
	for id, status := range map[string]schemas.Status{
		"task-0": schemas.StatusRetry, "task-1": schemas.StatusRetry, "task-3": schemas.StatusRetry,
		"task-2": schemas.StatusOK, "task-4": schemas.StatusOK,
	} {
		require.Equal(t, status, reports[id].Status, id)
	}
	f.awaitCommitted(5)
}

// TestBusyKey: a key with a long queue takes its turns with the others, even on a single handler.
func TestBusyKey(t *testing.T) {
	f := newFake(t)
	f.deliver("a=1", "a=2", "a=3", "b=1", "c=1")
	var mu sync.Mutex
	var order []string
	f.run(consumer.Config{Concurrency: 1}, func(_ context.Context, m consumer.Message) error {
		mu.Lock()
		defer mu.Unlock()
		order = append(order, string(m.Record.Key)+string(m.Record.Value))
		return nil
	})
	f.awaitCommitted(5)
	mu.Lock()
	defer mu.Unlock()
	require.Equal(t, []string{"a1", "b1", "c1", "a2", "a3"}, order)
}

// TestConcurrency: never more handlers than allowed, and never more messages taken than MaxPoll.
func TestConcurrency(t *testing.T) {
	f := newFake(t)
	var messages []string
	for i := range 60 {
		messages = append(messages, fmt.Sprintf("k%d=v", i))
	}
	f.deliver(messages...)
	var running, most atomic.Int64
	f.run(consumer.Config{Concurrency: 3, MaxPoll: 5}, func(context.Context, consumer.Message) error {
		n := running.Add(1)
		defer running.Add(-1)
		for old := most.Load(); n > old && !most.CompareAndSwap(old, n); old = most.Load() {
		}
		runtime.Gosched()
		return nil
	})
	f.awaitCommitted(60)
	require.LessOrEqual(t, most.Load(), int64(3))
}

// TestBusyConsumerLetsTheGroupRebalance: another member gets its share even if work never pauses.
func TestBusyConsumerLetsTheGroupRebalance(t *testing.T) {
	f := newFake(t)
	_, err := kadm.NewClient(f.reader).CreateTopic(t.Context(), 2, 1, nil, "busy")
	require.NoError(t, err)
	group := append(groupOpts(), kgo.ConsumeTopics("busy"), kgo.HeartbeatInterval(100*time.Millisecond))
	f.client = f.newClient(group...)

	// Each handler has the next message sent before it ends, and waits for it while the window
	// lasts, so that the consumer is never idle within one.
	var started sync.Map
	begun := func(n int) chan struct{} {
		c, _ := started.LoadOrStore(n, make(chan struct{}))
		return c.(chan struct{})
	}
	send := func(n int) {
		f.reader.Produce(context.Background(), &kgo.Record{Topic: "busy", Key: []byte(strconv.Itoa(n)), Value: []byte(strconv.Itoa(n))}, nil)
	}
	stop, result := f.run(consumer.Config{MaxHold: 100 * time.Millisecond}, func(ctx context.Context, m consumer.Message) error {
		n, err := strconv.Atoi(string(m.Record.Value))
		if err != nil {
			return err
		}
		close(begun(n))
		send(n + 1)
		select {
		case <-begun(n + 1):
		case <-time.After(300 * time.Millisecond): // longer than MaxHold: the next one is not taken, or by the other member
		case <-ctx.Done():
		}
		return nil
	})
	send(0)
	receive(t, begun(3))
	other := f.newClient(group...)
	ctx, cancel := context.WithTimeout(t.Context(), patience) // well below RebalanceTimeout
	defer cancel()
	lone := 0
	for n := 0; n == 0; n = len(other.PollRecords(ctx, 1).Records()) {
		require.NoError(t, ctx.Err(), "the other member has got nothing")
		for range 20 { // for both partitions
			lone += 1000
			send(lone)
		}
	}
	stop()
	require.NoError(t, f.await(result))
}

// TestAbandonedHandler: a handler that ignores its context cannot keep Run from ending, and its
// message comes again.
func TestAbandonedHandler(t *testing.T) {
	f := newFake(t)
	f.deliver("a=1", "b=2")
	started, release := make(chan struct{}), make(chan struct{})
	defer close(release)
	stop, result := f.run(consumer.Config{DrainTimeout: 50 * time.Millisecond}, func(_ context.Context, m consumer.Message) error {
		if string(m.Record.Key) == "b" {
			close(started)
			<-release
		}
		return nil
	})
	receive(t, started)
	require.Equal(t, schemas.StatusOK, f.reports(1)["task-0"].Status)
	stop()
	err := f.await(result)
	require.ErrorIs(t, err, consumer.ErrAbandoned)
	require.ErrorContains(t, err, "1 of them")
	require.EqualValues(t, 1, f.committed())
}

// TestEndedGoroutine: the effects of a handler that never returned are unknown, so its message is
// not committed.
func TestEndedGoroutine(t *testing.T) {
	f := newFake(t)
	f.deliver("a=1")
	_, result := f.run(consumer.Config{}, func(context.Context, consumer.Message) error {
		runtime.Goexit()
		return nil
	})
	require.ErrorContains(t, f.await(result), "its goroutine was ended")
	require.EqualValues(t, -1, f.committed())
}

// TestFailureStopsTheRest: after a failure nothing more starts, and what was handled before is
// committed.
func TestFailureStopsTheRest(t *testing.T) {
	f := newFake(t)
	f.send(false, "a=1", "a=bad", "a=3", "b=slow")
	release := make(chan struct{})
	var after atomic.Bool
	_, result := f.run(consumer.Config{}, func(_ context.Context, m consumer.Message) error {
		switch string(m.Record.Value) {
		case "bad":
			close(release)
			return errors.New("broken")
		case "slow":
			<-release
		case "3":
			after.Store(true)
		}
		return nil
	})
	require.ErrorContains(t, f.await(result), "broken")
	require.False(t, after.Load())
	require.EqualValues(t, 1, f.committed())
}

// TestSlowMessage: while one message is handled for long, its key waits and all others continue,
// even those fetched later. Nothing after the slow message is committed.
func TestSlowMessage(t *testing.T) {
	f := newFake(t)
	f.deliver("z=0", "a=slow", "b=1", "a=2")
	handled, release := make(chan string, 10), make(chan struct{})
	f.run(consumer.Config{Concurrency: 2}, func(_ context.Context, m consumer.Message) error {
		if string(m.Record.Value) == "slow" {
			<-release
		}
		handled <- string(m.Record.Key) + string(m.Record.Value)
		return nil
	})
	require.Equal(t, "z0", receive(t, handled))
	require.Equal(t, "b1", receive(t, handled))
	f.deliver("b=3", "c=4")
	require.ElementsMatch(t, []string{"b3", "c4"}, []string{receive(t, handled), receive(t, handled)})
	f.awaitCommitted(1) // while the slow one is at work, and no further
	close(release)
	require.Equal(t, "aslow", receive(t, handled))
	require.Equal(t, "a2", receive(t, handled))
	f.awaitCommitted(6)
}
