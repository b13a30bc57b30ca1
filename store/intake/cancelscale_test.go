package intake

import (
	"fmt"
	"os"
	"slices"
	"strconv"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/notyet/notyet/store/line"
	"github.com/notyet/notyet/store/look"
)

// TestCancelManyAtScale cancels many tasks by their prefix among others, while their slots are
// claimed again and again, and logs what that costs. Then everything falls due: none of the
// cancelled is there. NOTYET_CANCELS sets their number; published figures use 100000.
func TestCancelManyAtScale(t *testing.T) {
	n := 3000
	if v := os.Getenv("NOTYET_CANCELS"); v != "" {
		var err error
		n, err = strconv.Atoi(v)
		require.NoError(t, err)
	}
	each(t, func(t *testing.T, s *fixture) {
		for from := 0; from < n; from += 1000 {
			var part []any
			for i := from; i < from+1000; i++ {
				part = append(part, s.schedule(fmt.Sprint("gone-", i), in(time.Hour+time.Duration(i)*time.Millisecond)))
				if i%2 == 0 {
					part = append(part, s.schedule(fmt.Sprint("kept-", i), in(time.Hour+time.Duration(i)*time.Millisecond)))
				}
			}
			s.do(part...)
		}
		s.own()
		var claims []time.Duration
		stop := make(chan struct{})
		var claimer sync.WaitGroup
		claimer.Go(func() {
			for pos := int64(t0); ; pos++ {
				select {
				case <-stop:
					return
				case <-time.After(20 * time.Millisecond):
				}
				began := time.Now()
				if err := claimTo(t.Context(), s.Store, []int{0, 1, 2, 3}, s.epoch, pos); err != nil {
					t.Error(err)
					return
				}
				claims = append(claims, time.Since(began))
			}
		})
		began, filter, total, pieces := time.Now(), look.ListFilter{Topic: target, IDPrefix: "gone-", Limit: 500}, int64(0), []time.Duration(nil)
		for w := s.sweeper(); ; {
			many, more, err := w.list(s.ctx, filter)
			require.NoError(t, err)
			begins := time.Now()
			done, err := w.decide(s.ctx, many)
			require.NoError(t, err)
			pieces = append(pieces, time.Since(begins))
			total += done.Cancelled
			if filter.After = more; more == nil {
				break
			}
		}
		took := time.Since(began)
		close(stop)
		claimer.Wait()
		require.EqualValues(t, n, total)
		at := func(d []time.Duration, share float64) time.Duration {
			slices.Sort(d)
			return d[min(int(share*float64(len(d))), len(d)-1)].Round(100 * time.Microsecond)
		}
		t.Logf("%d tasks cancelled among %d in %s; a transaction took %s, p99 %s; a claim beside it %s, p99 %s", n, n+n/2, took.Round(10*time.Millisecond), at(pieces, 0.5), at(pieces, 0.99), at(claims, 0.5), at(claims, 0.99))

		end := t0 + 2*time.Hour.Milliseconds() + int64(n)
		s.claim(end)
		var ranges []line.Range
		for _, slot := range s.allSlots() {
			ranges = append(ranges, line.Range{Slot: slot, From: 0, To: end})
		}
		entries, err := s.Entries(s.ctx, ranges)
		require.NoError(t, err)
		require.Len(t, entries, n/2, "none of the cancelled falls due")
	})
}
