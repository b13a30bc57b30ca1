package election

import (
	"context"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
)

func TestLocalOwnsAllSlots(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var slots atomic.Int64
		slots.Store(3)
		epochs := &countingEpochs{}
		l := NewLocal("a", func(context.Context) (int, error) { return int(slots.Load()), nil }, epochs)
		require.Zero(t, l.Current().Epoch)
		require.True(t, l.Trusted())
		ctx, cancel := context.WithCancel(t.Context())
		ended := make(chan error, 1)
		go func() { ended <- l.Run(ctx) }()
		<-l.Watch()
		require.Equal(t, Assignment{Epoch: 1, Slots: []int{0, 1, 2}, Members: []string{"a"}}, l.Current())
		require.True(t, l.Alive("a"))
		require.False(t, l.Alive("b"), "an earlier start")

		time.Sleep(time.Hour)
		require.EqualValues(t, 1, l.Current().Epoch, "one epoch per start")
		epochs.away.Store(true)
		slots.Store(5)
		time.Sleep(2 * localPoll)
		require.EqualValues(t, 1, l.Current().Epoch)
		epochs.away.Store(false)
		<-l.Watch()
		require.Equal(t, Assignment{Epoch: 2, Slots: []int{0, 1, 2, 3, 4}, Members: []string{"a"}}, l.Current())
		cancel()
		require.NoError(t, <-ended)
	})
}

func TestLocalNeedsTheDatabaseToStart(t *testing.T) {
	epochs := &countingEpochs{}
	epochs.away.Store(true)
	l := NewLocal("a", func(context.Context) (int, error) { return 3, nil }, epochs)
	require.ErrorContains(t, l.Run(t.Context()), "taking an epoch: the database is away")
	require.Zero(t, l.Current())
}

// A stop that comes while the process starts is no failure.
func TestLocalStoppedBeforeItBegan(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	slots := func(ctx context.Context) (int, error) { cancel(); return 0, ctx.Err() }
	require.NoError(t, NewLocal("a", slots, &countingEpochs{}).Run(ctx))
}
