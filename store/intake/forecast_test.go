package intake

import (
	"fmt"
	"math"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/notyet/notyet/schemas"
	"github.com/notyet/notyet/store/look"
	"github.com/notyet/notyet/task"
)

func TestForecastCountsWhatIsToCome(t *testing.T) {
	each(t, func(t *testing.T, s *fixture) {
		base := time.Now().Add(time.Hour).UnixMilli() // beyond the server's clock, as what is to come is
		at := func(ms int64) option { return in(time.Duration(base+ms-t0) * time.Millisecond) }
		for i := range 20 {
			s.do(s.schedule(fmt.Sprint("past", i), in(time.Duration(i+1)*time.Millisecond)))
			s.do(s.schedule(fmt.Sprint("near", i), at(int64(i))))
			s.do(s.schedule(fmt.Sprint("late", i), at(2500)))
		}
		other := s.schedule("other", at(999))
		other.Topic = "invoices"
		s.do(other, s.schedule("edge", at(1000)), s.schedule("gone", at(500)), s.cancel("gone"), s.schedule("beyond", at(3000)))
		s.deliver(t0 + 1000)

		forecast := func(topic string, from, to int64) map[int64]int64 {
			t.Helper()
			steps, next, err := look.New(s.Store).Forecast(s.ctx, look.ForecastFilter{Topic: topic, From: from, To: to, Step: 1000})
			require.NoError(t, err)
			require.Zero(t, next)
			out := map[int64]int64{}
			last := int64(-1)
			for _, step := range steps {
				require.Greater(t, step.At, last, "in order")
				last, out[step.At-base] = step.At, step.Count
			}
			return out
		}
		require.Equal(t, map[int64]int64{0: 21, 1000: 1, 2000: 20}, forecast("", base, base+3000))
		require.Equal(t, map[int64]int64{0: 20, 1000: 1, 2000: 20}, forecast(target, base, base+3000))
		require.Equal(t, map[int64]int64{0: 1}, forecast("invoices", base, base+3000))
		require.Empty(t, forecast("nothing", base, base+3000))
		require.Equal(t, task.Unkeyed("billing", 0), task.Unkeyed("a.5e0w0", 0))
		shares := s.schedule("shares", at(999))
		shares.Topic = "billing"
		s.do(shares)
		require.Equal(t, map[int64]int64{0: 1}, forecast("billing", base, base+3000))
		s.unkey("billing")
		require.Equal(t, map[int64]int64{0: 1}, forecast("billing", base, base+3000))
		require.Empty(t, forecast("a.5e0w0", base, base+3000), "another topic of its lane")
		shares.Op = schemas.OpCancel
		s.do(shares)
		require.Empty(t, forecast("", t0, t0+2000), "what was delivered is not to come")
		require.Empty(t, forecast(target, t0, base-1000), "nor what was cancelled")

		// What is claimed and not settled is still to come, and the two indexes meet without a gap or an overlap.
		s.claim(base + 1500)
		require.Equal(t, map[int64]int64{0: 20, 1000: 1, 2000: 20}, forecast(target, base, base+3000))
		require.Equal(t, map[int64]int64{0: 21, 1000: 1, 2000: 20}, forecast("", base, base+3000))

		// Where there is no time for all of it, the pieces make the whole.
		for _, topic := range []string{"", target} {
			pieces, calls := map[int64]int64{}, 0
			for from := base - 5000; from != 0; calls++ {
				steps, next, err := look.New(s.Store).Forecast(s.ctx, look.ForecastFilter{Topic: topic, From: from, To: base + 3000, Step: 1000, Within: 1})
				require.NoError(t, err)
				require.True(t, next == 0 || next == from+1000, "one step at least")
				for _, step := range steps {
					pieces[step.At-base] += step.Count
				}
				from = next
			}
			require.Equal(t, forecast(topic, base, base+3000), pieces)
			require.Equal(t, 8, calls)
		}
	})
}

// However dense and sparse times follow each other, a stretch that was too much is counted again in parts.
func TestForecastFindsBurstsBehindQuiet(t *testing.T) {
	each(t, func(t *testing.T, s *fixture) {
		const step = 1000
		base := time.Now().Add(time.Hour).UnixMilli()
		want := map[int64]int64{}
		var requests []*schemas.Request
		for i, at := range []int64{0, 70, 70, 70, 71, 71, 71, 71, 71, 71, 71, 72, 200, 450, 451, 452} {
			requests = append(requests, s.schedule(fmt.Sprint(i), in(time.Duration(base+at*step-t0)*time.Millisecond)))
			want[base+at*step]++
		}
		for _, r := range requests {
			s.do(r)
		}
		for _, topic := range []string{"", target} {
			for _, rows := range []int64{1, 3, 16, 64, 0} {
				steps, next, err := look.New(s.Store).Forecast(s.ctx, look.ForecastFilter{Topic: topic, From: base, To: base + 500*step, Step: step, Stretch: rows})
				require.NoError(t, err)
				require.Zero(t, next)
				got := map[int64]int64{}
				for _, step := range steps {
					got[step.At] = step.Count
				}
				require.Equal(t, want, got, "%d rows", rows)
			}
		}
	})
}

// Whatever time is asked about, counting ends.
func TestForecastAtTheEndOfTime(t *testing.T) {
	each(t, func(t *testing.T, s *fixture) {
		for _, step := range []int64{1, 60_000, 3_600_000, math.MaxInt64 / 2} {
			steps, next, err := look.New(s.Store).Forecast(s.ctx, look.ForecastFilter{From: math.MaxInt64 - 100_000, To: math.MaxInt64, Step: step})
			require.NoError(t, err)
			require.Empty(t, steps)
			require.Zero(t, next)
		}
	})
}
