package dispatcher

import (
	"context"
	"sync/atomic"
	"time"

	"github.com/notyet/notyet/dispatcher/flight"
)

// lookahead is how far ahead of now tasks are claimed.
type lookahead struct {
	*shared
	flight flight.Claims
	index  Index
	ahead  atomic.Int64 // ms; the claim loop writes, the claim and release loops read
}

func newLookahead(sh *shared, fl flight.Claims, ix Index) *lookahead {
	la := &lookahead{shared: sh, flight: fl, index: ix}
	la.ahead.Store(sh.cfg.LookAhead.Milliseconds())
	return la
}

const (
	// stagedEachSecond is about how many tasks one dispatcher reads and stages on one core.
	stagedEachSecond = 30_000
	// grain is how finely adjust looks at the load to come.
	grain = 500 * time.Millisecond
)

// adjust sets the look-ahead: longer before a burst whose bodies could not be read within the usual
// one.
func (la *lookahead) adjust(ctx context.Context) {
	usual, most := la.cfg.LookAhead.Milliseconds(), la.cfg.BurstLookAhead.Milliseconds()
	ahead := usual
	if most > usual {
		ahead = min(max(la.needed(ctx, most), usual), most)
	}
	la.ahead.Store(ahead)
}

// needed returns the look-ahead, in ms, that is long enough to stage the index's tasks of the next
// most ms and until the next look; 0: the usual look-ahead is enough.
func (la *lookahead) needed(ctx context.Context, most int64) int64 {
	now := la.clock.Millis()
	end := now + most + flight.SweepEvery.Milliseconds()
	slots := la.flight.NextBy(end)
	if len(slots) == 0 {
		return 0
	}
	var bounds []int64
	for at := now; at < end+grain.Milliseconds(); at += grain.Milliseconds() {
		bounds = append(bounds, at)
	}
	bound, cancel := context.WithTimeout(ctx, 200*time.Millisecond)
	defer cancel()
	counts, err := la.index.Counts(bound, slots, bounds)
	if err != nil {
		la.metrics.indexErrors.Inc()
		return 0
	}
	if lag := longestLag(counts); lag > 2*la.cfg.LookAhead {
		return lag.Milliseconds()
	}
	return 0
}

// longestLag returns how far staging would fall behind, at worst, if each grain's tasks were first
// read when they fall due.
func longestLag(counts []int64) (longest time.Duration) {
	lag := time.Duration(0)
	for _, n := range counts {
		lag = max(lag-grain, 0) + time.Duration(n)*time.Second/stagedEachSecond
		longest = max(longest, lag)
	}
	return longest
}
