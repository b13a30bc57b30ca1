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

// Steps are taken one after the other, as they are; the last one repeats.
func TestBackoffSteps(t *testing.T) {
	require.Zero(t, BackoffSteps())
	b := BackoffSteps(5*time.Second, 5*time.Minute, time.Second)
	require.Equal(t, "steps:5s,5m0s,1s", b.String())
	for attempt, want := range []time.Duration{1: 5 * time.Second, 2: 5 * time.Minute, 3: time.Second, 4: time.Second, 1000: time.Second} {
		if want > 0 {
			require.Equal(t, want, b.Pause(attempt), attempt)
		}
	}
	require.Equal(t, 7*time.Millisecond, BackoffSteps(7*time.Millisecond).Pause(1))
}

// From the 10th attempt on no pause is below 100 ms, whatever asks for one.
func TestPausesOfManyAttempts(t *testing.T) {
	const short, least = time.Millisecond, 100 * time.Millisecond
	for name, s := range map[string]Settings{
		"fixed":       {Backoff: Backoff{First: short, Max: short}},
		"exponential": {Backoff: Backoff{Exponential: true, First: short, Max: 3 * short}},
		"steps":       {Backoff: BackoffSteps(short, 2*short)},
	} {
		for attempt := range 10 {
			require.LessOrEqual(t, s.Pause(attempt, 0, NoRetryAfter), 3*short, "%s after attempt %d", name, attempt)
			require.Zero(t, s.Pause(attempt, 0, 0), "%s after attempt %d", name, attempt)
		}
		for _, attempt := range []int{10, 11, 5000, MaxAttempts} {
			require.Equal(t, least, s.Pause(attempt, 0, NoRetryAfter), "%s after attempt %d", name, attempt)
			require.Equal(t, least, s.Pause(attempt, 0, 0), "%s after attempt %d", name, attempt)
			require.Equal(t, least, s.Pause(attempt, attempt-1, 0), "%s after attempt %d, snoozed so far", name, attempt)
			require.Equal(t, time.Hour, s.Pause(attempt, 0, time.Hour), "%s after attempt %d", name, attempt)
		}
	}
}
