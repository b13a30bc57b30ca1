package sim

import (
	"fmt"
	"os"
	"runtime/pprof"
	"time"
)

// stillness is how long, in real time, a seed may go without a sign of life.
const stillness = 60 * time.Second

// watch ends the test binary when a seed stands still: nothing of a bubble that waits for a lock can be ended alone. It is
// called outside of the bubble, and says what every goroutine waits for.
func watch(seed uint64, sign func() int64) (end func()) {
	over := make(chan struct{})
	go func() {
		look := time.NewTicker(time.Second)
		defer look.Stop()
		last, since := sign(), time.Now()
		for {
			select {
			case <-over:
				return
			case <-look.C:
			}
			if now := sign(); now != last {
				last, since = now, time.Now()
			}
			if time.Since(since) > stillness {
				fmt.Fprintf(os.Stderr, "seed %d has stood still for %v; run it again: make sim SEED=%d\n", seed, stillness, seed)
				_ = pprof.Lookup("goroutine").WriteTo(os.Stderr, 2)
				os.Exit(1)
			}
		}
	}()
	return func() { close(over) }
}
