// Package loop repeats: a pause and a function go in, calls come out.
package loop

import (
	"context"
	"time"
)

// Every calls f again and again until ctx ends, the first time after a pause. A call that takes longer than the pause is followed by the
// next one.
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
