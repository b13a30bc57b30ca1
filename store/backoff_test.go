package store

import (
	"math"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/notyet/notyet/schemas"
)

// The pause of an exponential backoff lies in the upper half of First doubled for each attempt, and never above Max, however long
// both are: a sum that overflows would be over at once.
func TestBackoffDoublesUpToItsMax(t *testing.T) {
	const century = 100 * 365 * 24 * time.Hour
	for _, c := range []struct {
		first, most time.Duration
		attempt     int
		want        time.Duration
	}{
		{time.Second, 10 * time.Minute, 1, time.Second},
		{time.Second, 10 * time.Minute, 4, 8 * time.Second},
		{time.Second, 10 * time.Minute, 11, 10 * time.Minute},
		{time.Second, 10 * time.Minute, math.MaxInt32, 10 * time.Minute},
		{time.Second, time.Second, 5, time.Second},
		{2 * century, math.MaxInt64, 2, math.MaxInt64},
		{time.Millisecond, math.MaxInt64, 1000, math.MaxInt64},
	} {
		for range 100 {
			got := Backoff(schemas.Backoff{Exponential: true, First: c.first, Max: c.most}, c.attempt)
			require.LessOrEqual(t, got, c.want, c)
			require.GreaterOrEqual(t, got, c.want/2, c)
		}
	}
}
