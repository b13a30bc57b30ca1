package index_test

import (
	"context"
	"maps"
	"testing"
	"time"

	"github.com/alicebob/miniredis/v2"
	"github.com/stretchr/testify/require"
	"go.uber.org/zap"

	"github.com/notyet/notyet/internal/index"
)

const patience = time.Minute

// wakeUntil publishes until something arrives: a subscription is not complete
// when Wakes returns, and what is published before is lost by design.
func wakeUntil(t *testing.T, x *index.Index, wakes <-chan []index.SlotPos, at []index.SlotPos) []index.SlotPos {
	t.Helper()
	var got []index.SlotPos
	require.Eventually(t, func() bool {
		if err := x.Wake(t.Context(), at); err != nil {
			return false
		}
		select {
		case got = <-wakes:
			return true
		case <-time.After(2 * time.Second):
			return false
		}
	}, patience, time.Millisecond)
	for { // one that came late was published again
		select {
		case got = <-wakes:
		case <-time.After(200 * time.Millisecond):
			return got
		}
	}
}

func TestWakes(t *testing.T) {
	onEveryServer(t, func(t *testing.T, x *index.Index, raw *server, prefix string) {
		ctx, cancel := context.WithCancel(t.Context())
		wakes := x.Wakes(ctx)
		got := wakeUntil(t, x, wakes, []index.SlotPos{{Slot: 9, Pos: base}, {Slot: 2, Pos: -1}})
		require.Equal(t, []index.SlotPos{{Slot: 2, Pos: -1}, {Slot: 9, Pos: base}}, got)

		// What a newer version might send is not worth an error.
		require.NoError(t, raw.Publish(ctx, prefix+":wake", "x 1:y -4:4 :: 3:7 5:6:7").Err())
		require.Eventually(t, func() bool {
			got = <-wakes
			return got[0].Slot == 3
		}, patience, time.Millisecond)
		require.Equal(t, []index.SlotPos{{Slot: 3, Pos: 7}}, got)

		cancel()
		require.Eventually(t, func() bool {
			_, open := <-wakes
			return !open
		}, patience, time.Millisecond)
	})
}

// Nobody reads: publishing goes on, and what waits is merged to the earliest
// position of each slot.
func TestSlowReaderBlocksNobody(t *testing.T) {
	onEveryServer(t, func(t *testing.T, x *index.Index, _ *server, _ string) {
		wakes := x.Wakes(t.Context())
		wakeUntil(t, x, wakes, []index.SlotPos{{Slot: 0, Pos: 1}})

		const messages = 5000
		for i := range messages {
			require.NoError(t, x.Wake(t.Context(), []index.SlotPos{{Slot: i % 10, Pos: int64(messages - i)}}))
		}
		require.NoError(t, x.Wake(t.Context(), []index.SlotPos{{Slot: 99, Pos: 1}}))
		earliest, received := make(map[int]int64), 0
		want := map[int]int64{99: 1}
		for slot := range 10 {
			want[slot] = int64(10 - slot)
		}
		require.Eventually(t, func() bool {
			got := <-wakes
			received++
			for _, s := range got {
				if pos, ok := earliest[s.Slot]; !ok || s.Pos < pos {
					earliest[s.Slot] = s.Pos
				}
			}
			return maps.Equal(earliest, want) // in a cluster, messages come through several servers and overtake each other
		}, patience, time.Microsecond, "%v", earliest)
		require.Less(t, received, messages/2)
	})
}

func TestWakesSurviveARestart(t *testing.T) {
	m := miniredis.RunT(t)
	addr := m.Addr()
	m.Close() // away from the start
	x, err := index.New(index.Config{Addrs: []string{addr}}, zap.NewNop())
	require.NoError(t, err)
	t.Cleanup(x.Close)
	wakes := x.Wakes(t.Context())
	for round := range 3 {
		require.NoError(t, m.Restart())
		at := []index.SlotPos{{Slot: round, Pos: base}}
		require.Equal(t, at, wakeUntil(t, x, wakes, at))
		m.Close()
		require.Error(t, x.Wake(t.Context(), at))
	}
}
