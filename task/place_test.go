package task

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

func TestPhase(t *testing.T) {
	const done, claimed = 100, 200
	for _, c := range []struct {
		name  string
		slot  int
		pos   int64
		state State
		want  Phase
	}{
		{"beyond claimed", 3, 201, StateLine, Pending},
		{"beyond claimed, for a retry", 3, 201, StateRetry, Between},
		{"beyond claimed, until a report", 3, 201, StateReport, Between},
		{"at claimed", 3, 200, StateLine, InFlight},
		{"claimed for a retry", 3, 101, StateRetry, InFlight},
		{"claimed, its report overdue", 3, 101, StateReport, InFlight},
		{"at done", 3, 100, StateLine, Ended},
		{"retried and done", 3, 100, StateRetry, Ended},
		{"out of the line", OutOfLine, 201, StateCancelled, Ended},
	} {
		t.Run(c.name, func(t *testing.T) {
			row := Task{Slot: c.slot, Pos: c.pos, State: c.state}
			require.Equal(t, c.want, row.Phase(claimed, done))
		})
	}
}

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
