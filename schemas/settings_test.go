package schemas

import (
	"math"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

func TestBackoffPause(t *testing.T) {
	exponential := func(longest time.Duration) Backoff {
		return Backoff{Exponential: true, First: time.Second, Max: longest}
	}
	for _, c := range []struct {
		backoff Backoff
		attempt int
		longest time.Duration
	}{
		{exponential(10 * time.Second), 1, time.Second},
		{exponential(10 * time.Second), 4, 8 * time.Second},
		{exponential(10 * time.Second), 5, 10 * time.Second},
		{exponential(math.MaxInt64), math.MaxInt, math.MaxInt64},
	} {
		seen := map[time.Duration]bool{}
		for range 20 {
			pause := c.backoff.Pause(c.attempt)
			require.LessOrEqual(t, pause, c.longest)
			require.GreaterOrEqual(t, pause, c.longest/2)
			seen[pause] = true
		}
		require.Greater(t, len(seen), 1, "pauses are jittered")
	}
	fixed := Backoff{First: time.Second, Max: time.Second}
	require.Equal(t, time.Second, fixed.Pause(7))
}
