package machine

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
)

func TestInstantsBoundWhatHasPassed(t *testing.T) {
	begin := Instant{time.Now(), 5 * time.Second, time.Hour}
	after := func(mono, slewed, slept time.Duration) Instant {
		return Instant{begin.Time.Add(mono), begin.Slewed + slewed, begin.Slept + slept}
	}
	for name, c := range map[string]struct {
		now         Instant
		least, most time.Duration
	}{
		"a steady clock":          {after(time.Second, 0, 0), time.Second, time.Second},
		"slewed ahead":            {after(time.Second, 80*time.Millisecond, 0), 920 * time.Millisecond, time.Second},
		"slewed back":             {after(time.Second, -80*time.Millisecond, 0), time.Second, 1080 * time.Millisecond},
		"suspended":               {after(time.Second, 0, time.Minute), time.Second, 61 * time.Second},
		"readings of two moments": {after(time.Second, 0, noise), time.Second, time.Second},
	} {
		require.Equal(t, c.least, c.now.Least(begin), name)
		require.Equal(t, c.most, c.now.Most(begin), name)
	}
}

func TestNowNeverRunsAheadOfExact(t *testing.T) {
	begin := Exact()
	for range 100_000 {
		cheap := Now()
		exact := Exact()
		require.LessOrEqual(t, cheap.Least(begin), exact.Least(begin)+together)
		require.False(t, exact.Time.Before(begin.Time))
	}
}

// Under virtual time, what passes is what the test lets pass.
func TestVirtualTime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		begin := Exact()
		time.Sleep(time.Hour)
		require.InDelta(t, time.Hour, Now().Most(begin), float64(10*time.Millisecond))
		require.InDelta(t, time.Hour, Now().Least(begin), float64(10*time.Millisecond))
	})
}

func BenchmarkNow(b *testing.B) {
	for b.Loop() {
		_ = Now()
	}
}

func BenchmarkExact(b *testing.B) {
	for b.Loop() {
		_ = Exact()
	}
}

func BenchmarkTimeNow(b *testing.B) {
	for b.Loop() {
		_ = time.Now()
	}
}
