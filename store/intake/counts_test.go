package intake

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

func TestCountsOfWhatIsNext(t *testing.T) {
	each(t, func(t *testing.T, s *fixture) {
		for i, id := range []string{"a", "b", "c", "d", "e"} {
			s.do(s.schedule(id, in(time.Duration(i)*time.Second)))
		}
		counts := func(slots []int, bounds ...int64) []int64 {
			t.Helper()
			out, err := s.Counts(s.ctx, slots, bounds)
			require.NoError(t, err)
			return out
		}
		all := s.allSlots()
		require.Equal(t, []int64{1, 2, 1}, counts(all, t0, t0+1000, t0+3000, t0+10_000), "the lower bound is not counted, and the upper one is")
		require.Equal(t, []int64{0}, counts(all, t0+4000, t0+9000))
		require.Equal(t, []int64{5}, counts(all, t0-1, t0+9000))
		require.Empty(t, counts(all, t0))
		require.Equal(t, []int64{0}, counts(nil, t0, t0+9000))
		var apart int64
		for _, slot := range all {
			apart += counts([]int{slot}, t0-1, t0+9000)[0]
		}
		require.EqualValues(t, 5, apart)
	})
}
