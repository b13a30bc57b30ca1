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
