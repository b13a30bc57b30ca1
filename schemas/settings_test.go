package schemas

import (
	"math"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

func TestBackoffPause(t *testing.T) {
	const century = 100 * 365 * 24 * time.Hour
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
		{exponential(10 * time.Minute), 11, 10 * time.Minute},
		{exponential(10 * time.Minute), math.MaxInt32, 10 * time.Minute},
		{exponential(time.Second), 5, time.Second},
		{exponential(math.MaxInt64), math.MaxInt, math.MaxInt64},
		{Backoff{Exponential: true, First: 2 * century, Max: math.MaxInt64}, 2, math.MaxInt64}, // a sum that overflows would be over at once
		{Backoff{Exponential: true, First: time.Millisecond, Max: math.MaxInt64}, 1000, math.MaxInt64},
	} {
		seen := map[time.Duration]bool{}
		for range 200 {
			pause := c.backoff.Pause(c.attempt)
			require.LessOrEqual(t, pause, c.longest, c)
			require.Greater(t, pause, c.longest/2, c)
			seen[pause] = true
		}
		require.Greater(t, len(seen), 100, "those that failed together must not come back together")
	}
	fixed := Backoff{First: 5 * time.Second, Max: 5 * time.Second}
	for attempt := 1; attempt < 50; attempt++ {
		require.Equal(t, 5*time.Second, fixed.Pause(attempt), "fixed is not jittered")
	}
	require.Equal(t, time.Nanosecond, Backoff{Exponential: true, First: 1, Max: 1}.Pause(3))
	require.Zero(t, Backoff{Exponential: true}.Pause(3))
}
