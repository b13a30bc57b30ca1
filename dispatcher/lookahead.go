package dispatcher

import (
	"context"
	"time"
)

const (
	// stagedEachSecond is about how many tasks one dispatcher reads and stages on one core.
	stagedEachSecond = 30_000
	// grain is how finely adjust looks at the load to come.
	grain = 500 * time.Millisecond
)

// adjust sets the look-ahead: longer before a burst whose bodies could not be read within the usual one.
func (d *Dispatcher) adjust(ctx context.Context) {
	usual, most := d.cfg.LookAhead.Milliseconds(), d.cfg.BurstLookAhead.Milliseconds()
	ahead := usual
	if most > usual {
		ahead = min(max(d.needed(ctx, most), usual), most)
	}
	d.mu.Lock()
	d.ahead = ahead
	d.mu.Unlock()
}

// needed answers how long it takes to stage what the index holds for the next most ms and the time to the next look, ms; 0 if that
// is about the usual look-ahead.
func (d *Dispatcher) needed(ctx context.Context, most int64) int64 {
	now := d.clock.Millis()
	end := now + most + sweepEvery.Milliseconds()
	var slots []int
	d.mu.Lock()
	for _, l := range d.lines {
		if l.next <= end && l.leaving.IsZero() {
			slots = append(slots, l.number)
		}
	}
	d.mu.Unlock()
	if len(slots) == 0 {
		return 0
	}
	var bounds []int64
	for at := now; at < end+grain.Milliseconds(); at += grain.Milliseconds() {
		bounds = append(bounds, at)
	}
	bound, cancel := context.WithTimeout(ctx, 200*time.Millisecond)
	defer cancel()
	counts, err := d.index.Counts(bound, slots, bounds)
	if err != nil {
		d.metrics.indexErrors.Inc()
		return 0
	}
	if lag := longestLag(counts); lag > 2*d.cfg.LookAhead {
		return lag.Milliseconds()
	}
	return 0
}

// longestLag answers how far staging would fall behind, at worst, if it began to read each grain's tasks when they fall due.
func longestLag(counts []int64) (longest time.Duration) {
	lag := time.Duration(0)
	for _, n := range counts {
		lag = max(lag-grain, 0) + time.Duration(n)*time.Second/stagedEachSecond
		longest = max(longest, lag)
	}
	return longest
}
