package loop

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
)

// The first call comes after a pause, and none after the end.
func TestEvery(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		began, calls := time.Now(), []time.Duration(nil)
		Every(ctx, time.Second, func(context.Context) {
			if calls = append(calls, time.Since(began)); len(calls) == 3 {
				cancel()
			}
			time.Sleep(100 * time.Millisecond)
		})
		require.Equal(t, []time.Duration{time.Second, 2 * time.Second, 3 * time.Second}, calls)
	})
}

func TestPausesDoubleUpToTheLongest(t *testing.T) {
	for n, want := range []time.Duration{0: 40, 1: 40, 2: 80, 3: 160, 4: 320, 5: 500, 6: 500, 1000: 500} {
		if want > 0 {
			require.Equal(t, want, Pause(n, 40, 500), n)
		}
	}
	require.Equal(t, time.Duration(500), Pause(1, 600, 500))
	require.Equal(t, time.Hour, Pause(1<<40, time.Second, time.Hour), "it does not overflow")
}

func TestRestEndsWithItsContext(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		began := time.Now()
		require.NoError(t, Rest(ctx, 600*time.Millisecond))
		require.Equal(t, 600*time.Millisecond, time.Since(began))
		require.ErrorIs(t, Rest(ctx, time.Hour), context.DeadlineExceeded)
		require.Equal(t, time.Second, time.Since(began))
	})
}
