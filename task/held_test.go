package task

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

func TestHeldPlaces(t *testing.T) {
	farthest := time.Date(9999, 12, 31, 0, 0, 0, 0, time.UTC).UnixMilli()
	require.Greater(t, Held(0), farthest, "beyond every claim")
	last := int64(0)
	for _, at := range []int64{-5, 0, 1, 1_700_000_000_000, farthest, 1 << 62} {
		pos := Held(at)
		require.True(t, IsHeld(pos))
		require.GreaterOrEqual(t, pos, last, "in order")
		last = pos
		if at >= 0 && at <= farthest {
			require.Equal(t, at, HeldSince(pos))
			require.False(t, IsHeld(at))
			require.Equal(t, at, HeldSince(at))
		}
	}
	row := Task{Slot: 3, Pos: Held(1), State: StateLine}
	require.Equal(t, Pending, row.Phase(farthest, farthest), "it can be cancelled")
}
