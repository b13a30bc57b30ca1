package store

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
)

func TestClockShowsTheDatabasesTime(t *testing.T) {
	each(t, func(t *testing.T, s *fixture) {
		before, err := s.Time(t.Context())
		require.NoError(t, err)
		c := s.Clock()
		require.NoError(t, c.Start(t.Context()))
		shown := c.Now()
		after, err := s.Time(t.Context())
		require.NoError(t, err)
		require.False(t, shown.Before(before))
		require.False(t, shown.After(after), "never ahead")
	})
}

// TestClockFollowsTheDatabase asks a database whose clock differs from this machine's, and is not changed by the machine's.
func TestClockFollowsTheDatabase(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := &Clock{}
		begin := time.Now()
		c.last.Store(&reading{at: begin, shown: begin.Add(time.Hour)}) // the database is an hour ahead
		time.Sleep(8192 * time.Millisecond)
		require.Equal(t, begin.Add(time.Hour+8191*time.Millisecond), c.Now(), "it goes a little slow by itself")

		took := 10 * time.Millisecond
		answer := func(shown time.Time) {
			now := time.Now()
			c.learn(now.Add(-took), now, shown)
		}
		answer(begin.Add(time.Hour + 8182*time.Millisecond)) // and 10 ms on the way: at most 8192 now
		require.Equal(t, begin.Add(time.Hour+8191*time.Millisecond), c.Now(), "what an answer allows stays")
		require.Equal(t, begin.Add(time.Hour+8192*time.Millisecond).UnixMilli(), c.Latest())
		answer(begin.Add(time.Hour + 8192*time.Millisecond))
		require.Equal(t, begin.Add(time.Hour+8192*time.Millisecond), c.Now(), "it catches up")
		require.Equal(t, begin.Add(time.Hour+8192*time.Millisecond).UnixMilli(), c.Latest(), "what an earlier answer excludes stays excluded")
		before := c.Latest()
		answer(begin)
		require.Equal(t, begin.Add(took), c.Now(), "another database is believed at once, at most what it may show by now")
		require.Equal(t, took-8192*time.Millisecond, c.Offset())
		require.Equal(t, before, c.Latest(), "another process may go by the old time until it asks again")
		for range 9 {
			time.Sleep(time.Second)
			answer(begin.Add(time.Since(begin) - 8192*time.Millisecond))
		}
		require.InDelta(t, before+9000, c.Latest(), 2)
		time.Sleep(time.Second)
		require.InDelta(t, c.Now().UnixMilli(), c.Latest(), 20, "now all have asked")
	})
}
