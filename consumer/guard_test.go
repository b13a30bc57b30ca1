package consumer_test

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/alicebob/miniredis/v2"
	_ "github.com/glebarez/go-sqlite"
	"github.com/stretchr/testify/require"

	"github.com/notyet/notyet/consumer"
	"github.com/notyet/notyet/schemas"
)

// TestTTLGuard: what is marked is seen until it expires.
func TestTTLGuard(t *testing.T) {
	redis := miniredis.RunT(t)
	down := error(nil)
	guard := consumer.TTLGuard{
		Has: func(_ context.Context, key string) (bool, error) { return redis.Exists(key), down },
		Set: func(_ context.Context, key string, ttl time.Duration) error {
			if down == nil {
				require.NoError(t, redis.Set(key, "1"))
				redis.SetTTL(key, ttl)
			}
			return down
		},
	}
	for _, c := range []struct {
		prefix  string
		ttl     time.Duration
		lasting time.Duration
	}{{"", 0, consumer.DefaultGuardTTL}, {"billing:", time.Hour, time.Hour}} {
		guard.Prefix, guard.TTL = c.prefix, c.ttl
		seen, err := guard.Seen(t.Context(), "k")
		require.NoError(t, err)
		require.False(t, seen, "the other group's mark is not this one's")
		require.NoError(t, guard.Done(t.Context(), "k"))
		redis.FastForward(c.lasting - time.Second)
		seen, err = guard.Seen(t.Context(), "k")
		require.NoError(t, err)
		require.True(t, seen)
		redis.FastForward(2 * time.Second)
		seen, err = guard.Seen(t.Context(), "k")
		require.NoError(t, err)
		require.False(t, seen)
		require.NoError(t, guard.Done(t.Context(), "k"))
	}
	down = errors.New("down")
	_, err := guard.Seen(t.Context(), "k")
	require.ErrorIs(t, err, down)
	require.ErrorIs(t, guard.Done(t.Context(), "k"), down)
}

// memory is a Guard that keeps keys in a map.
type memory struct {
	mu               sync.Mutex
	keys             map[string]bool
	seenErr, doneErr error
}

func TestGuard(t *testing.T) {
	down := errors.New("down")
	for name, c := range map[string]struct {
		seen             bool
		seenErr, doneErr error
		status           schemas.Status
		calls, errors    int // of the handler and to OnError, for two copies of one delivery
	}{
		"second copy":     {false, nil, nil, schemas.StatusOK, 1, 0},
		"seen before":     {true, nil, nil, schemas.StatusOK, 0, 0},
		"cannot be asked": {false, down, nil, schemas.StatusRetry, 0, 2},
		"cannot be told":  {false, nil, down, schemas.StatusOK, 2, 2},
	} {
		t.Run(name, func(t *testing.T) {
			f := newFake(t)
			f.deliver("a=1")
			f.deliver("a=1") // the same id, attempt and delivery key
			guard := &memory{keys: map[string]bool{"key-task-0": c.seen}, seenErr: c.seenErr, doneErr: c.doneErr}
			var calls, failed atomic.Int64
			f.run(consumer.Config{Guard: guard, OnError: func(consumer.Message, error) { failed.Add(1) }},
				func(context.Context, consumer.Message) error { calls.Add(1); return nil })
			f.awaitCommitted(2)
			require.Equal(t, c.status, f.reports(1)["task-0"].Status)
			require.EqualValues(t, c.calls, calls.Load())
			require.EqualValues(t, c.errors, failed.Load())
		})
	}
}

func (g *memory) Seen(_ context.Context, key string) (bool, error) {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.keys[key], g.seenErr
}

func (g *memory) Done(_ context.Context, key string) error {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.keys[key] = g.doneErr == nil
	return g.doneErr
}
