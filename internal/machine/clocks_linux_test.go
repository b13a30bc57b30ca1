package machine

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"
)

// A clock that the kernel does not have says nothing, also after an hour.
func TestAClockThatIsMissingSaysNothing(t *testing.T) {
	for name, missing := range map[string]int32{"none": -1, "the oscillator": unix.CLOCK_MONOTONIC_RAW, "the one that a suspend does not stop": unix.CLOCK_BOOTTIME} {
		after := func(passed time.Duration) Instant {
			slewed, slept := compare(func(id int32) (time.Duration, bool) {
				if id == missing {
					return 0, false
				}
				return 1000*time.Hour + passed, true
			})
			return Instant{time.Unix(0, 0).Add(passed), slewed, slept}
		}
		require.Equal(t, time.Hour, after(time.Hour).Least(after(0)), name)
		require.Equal(t, time.Hour, after(time.Hour).Most(after(0)), name)
	}
}
