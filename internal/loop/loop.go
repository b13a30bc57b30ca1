// Package loop repeats and rests: a pause and a function go in, calls come out; a count of failures
// goes in, and how long to rest comes out.
package loop

import (
	"context"
	"time"
)

// Every calls f again and again until ctx ends, the first time after a pause. After a call longer
// than the pause the next one follows at once.
func Every(ctx context.Context, pause time.Duration, f func(context.Context)) {
	tick := time.NewTicker(pause)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
			f(ctx)
		}
	}
}

// Pause returns the n-th pause in a row, n from 1: the first, then each twice as long as the one
// before, at most the longest.
func Pause(n int, first, longest time.Duration) time.Duration {
	for ; n > 1 && first < longest; n-- {
		first *= 2
	}
	return min(first, longest)
}

// Rest waits for d, or until ctx ends. Its error is ctx's.
func Rest(ctx context.Context, d time.Duration) error {
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-time.After(d):
		return nil
	}
}
