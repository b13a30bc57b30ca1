package machine

import (
	"time"

	"golang.org/x/sys/unix"
)

// together is how soon after each other the clocks are to be read: a thread that loses its processor
// in between reads them again.
const together = 20 * time.Microsecond

// clocks reads how far the monotonic clock is ahead of its oscillator, and how long it stood.
func clocks() (slewed, slept time.Duration) {
	tightest := time.Duration(-1)
	for range 4 {
		before, raw := clock(unix.CLOCK_MONOTONIC), clock(unix.CLOCK_MONOTONIC_RAW)
		boot, after := clock(unix.CLOCK_BOOTTIME), clock(unix.CLOCK_MONOTONIC)
		if gap := after - before; tightest < 0 || gap < tightest {
			tightest, slewed, slept = gap, after-raw, boot-before
		}
		if tightest < together {
			break
		}
	}
	return slewed, slept
}

// clock returns 0 for a clock that the kernel does not have: then its difference never changes much.
func clock(id int32) time.Duration {
	var t unix.Timespec
	if unix.ClockGettime(id, &t) != nil {
		return 0
	}
	return time.Duration(t.Nano())
}
