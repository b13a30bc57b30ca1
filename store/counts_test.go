package store

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

// A burst is not read as a whole.
func TestCountsReadNoMoreThanIsNeeded(t *testing.T) {
	each(t, func(t *testing.T, s *fixture) {
		for i := range 5 {
			s.do(s.schedule(string(rune('a'+i)), in(time.Duration(i)*time.Millisecond), key("one")))
		}
		slot := s.place("a").Slot
		for most, want := range map[int]int64{2: 3, 10: 5} {
			out, err := s.counts(s.ctx, []int{slot}, []int64{t0 - 1, t0 + 9000}, most)
			require.NoError(t, err)
			require.Equal(t, []int64{want}, out)
		}
	})
}
