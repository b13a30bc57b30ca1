package machine

import (
	"time"

	"golang.org/x/sys/unix"
)

// together bounds the time between two readings. A thread without its processor reads again.
const together = 20 * time.Microsecond

// clocks reads how far the monotonic clock is ahead of its oscillator, and how long it stood.
func clocks() (slewed, slept time.Duration) { return compare(clock) }

func compare(clock func(id int32) (t time.Duration, there bool)) (slewed, slept time.Duration) {
	tightest := time.Duration(-1)
	for range 4 {
		before, _ := clock(unix.CLOCK_MONOTONIC)
		raw, steady := clock(unix.CLOCK_MONOTONIC_RAW)
		boot, wakes := clock(unix.CLOCK_BOOTTIME)
		after, _ := clock(unix.CLOCK_MONOTONIC)
		if !steady {
			raw = after
		}
		if !wakes {
			boot = before
		}
		if gap := after - before; tightest < 0 || gap < tightest {
			tightest, slewed, slept = gap, after-raw, boot-before
		}
		if tightest < together {
			break
		}
	}
	return slewed, slept
}

// clock returns false for a clock missing in the kernel, or in its stand-in.
func clock(id int32) (t time.Duration, there bool) {
	var ts unix.Timespec
	if unix.ClockGettime(id, &ts) != nil {
		return 0, false
	}
	return time.Duration(ts.Nano()), true
}
