// Package machine reads the clocks of this machine; instants come out. It serves where a wrong
// clock of the machine would do harm: the Clock of the database and the trust in the election.
//
// Go's monotonic time is Linux's CLOCK_MONOTONIC. Time synchronisation slews it, by 500 ppm (ntpd)
// or 83,333 ppm (chrony), and it stands while the machine is suspended. Two more clocks show how
// much: CLOCK_MONOTONIC_RAW is not slewed, and CLOCK_BOOTTIME counts a suspend. A hypervisor that
// stops all clocks of its guest is not noticed. On other systems than Linux there is only Go's.
//
// Built with the tag faultpoints, the program reads its clocks from a file: see package clockfile.
// The libraries for Kafka, Redis and ZooKeeper read the real clock themselves.
package machine

import (
	"sync/atomic"
	"time"
)

// Instant is a moment of this machine. The zero Instant is long ago.
type Instant struct {
	// Time is the wall clock, and the monotonic one.
	Time time.Time
	// Slewed is the lead of the monotonic clock over the machine's oscillator, from some beginning.
	Slewed time.Duration
	// Slept is for how long the monotonic clock stood in suspends, from some beginning.
	Slept time.Duration
}

const (
	// lookEvery is how often Now looks at the other clocks at most: four system calls.
	lookEvery = 2 * time.Millisecond
	// fastest is the inverse of how much faster the kernel lets the monotonic clock run than its
	// oscillator, rounded up: 1/8 for 10 % by ticks and 500 ppm by frequency.
	fastest = 8
	// noise is the largest difference between readings that says nothing, for the readings of two
	// clocks are not of the same moment.
	noise = time.Millisecond
)

var latest atomic.Pointer[Instant]

// Now returns the present moment, cheaply. Its Slewed is an upper bound, at most 250 µs too large.
// A suspend that ended less than two milliseconds ago may be missing in Slept.
func Now() Instant {
	now := monotonic()
	if last := latest.Load(); last != nil {
		if passed := now.Sub(last.Time); passed >= 0 && passed < lookEvery {
			return Instant{now, last.Slewed + passed/fastest, last.Slept}
		}
	}
	return Exact()
}

// Exact returns the present moment by all clocks.
func Exact() Instant {
	slewed, slept := look()
	out := Instant{monotonic(), slewed, slept}
	latest.Store(&out)
	return out
}

// Least returns how much time has passed since an earlier moment, at least: by the slower of the
// monotonic clock and its oscillator.
func (t Instant) Least(since Instant) time.Duration {
	return t.Time.Sub(since.Time) - max(t.Slewed-since.Slewed, 0)
}

// Most returns how much time has passed since an earlier moment, at most: by the faster of the two,
// and with the time for which the machine was suspended.
func (t Instant) Most(since Instant) time.Duration {
	return t.Elapsed(since) + max(since.Slewed-t.Slewed, 0)
}

// Elapsed returns how much time has passed since an earlier moment by the monotonic clock, and with
// the time for which the machine was suspended.
func (t Instant) Elapsed(since Instant) time.Duration {
	passed := t.Time.Sub(since.Time)
	if slept := t.Slept - since.Slept; slept > noise {
		passed += slept
	}
	return passed
}

// Wall returns what the machine's wall clock shows.
func (t Instant) Wall() time.Time { return wall(t.Time.Round(0)) }
