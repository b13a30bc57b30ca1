package store

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/notyet/notyet/internal/machine"
	"github.com/notyet/notyet/store/internal/dialect"
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
		c.last.Store(&reading{at: machine.Instant{Time: begin}, shown: begin.Add(time.Hour)}) // the database is an hour ahead
		time.Sleep(8192 * time.Millisecond)
		require.Equal(t, begin.Add(time.Hour+8191*time.Millisecond), c.Now(), "it goes a little slow by itself")

		took := 10 * time.Millisecond
		answer := func(shown time.Time) {
			now := time.Now()
			c.learn(machine.Instant{Time: now.Add(-took)}, machine.Instant{Time: now}, shown)
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

// TestClockOfASlewedMachine: chrony slews CLOCK_MONOTONIC by up to 83,333 ppm, ntpd by 500. However fast it runs, and however long the
// database is silent, the Clock is never ahead; after a suspend, Latest is not behind.
func TestClockOfASlewedMachine(t *testing.T) {
	for _, ppm := range []time.Duration{-83333, -500, 0, 100, 500, 10_000, 83_333} {
		for _, silent := range []int{0, 10} {
			now := machine.Instant{Time: time.Now()}
			db := time.Unix(1_800_000_000, 0)
			c := &Clock{}
			c.last.Store(&reading{at: now, shown: db, latest: db})
			for second := range 40 {
				now.Slewed += time.Second * ppm / 1_000_000
				now.Time = now.Time.Add(time.Second + time.Second*ppm/1_000_000)
				db = db.Add(time.Second)
				last := c.last.Load()
				require.False(t, last.moved(now).After(db), "%d ppm, silent for %d s: ahead by %v", ppm, silent, last.moved(now).Sub(db))
				require.False(t, last.bound(now).Before(db))
				require.Less(t, db.Sub(last.moved(now)), 2*time.Millisecond+time.Second*max(-ppm, 0)*time.Duration(silent+1)/1_000_000)
				if second < 20 || second >= 20+silent {
					sent := now
					sent.Time = sent.Time.Add(-300 * time.Microsecond)
					c.learn(sent, now, db)
				}
			}
			now.Slept += time.Hour
			require.False(t, c.last.Load().anybody(now).Before(db.Add(time.Hour)), "the others went on")
			require.False(t, c.last.Load().moved(now).After(db.Add(time.Hour)))
			c.learn(now, now, db.Add(time.Hour))
			require.Equal(t, db.Add(time.Hour), c.last.Load().moved(now))
		}
	}
}

func BenchmarkClock(b *testing.B) {
	c := &Clock{store: &Store{}}
	c.last.Store(&reading{at: machine.Exact()})
	for b.Loop() {
		_ = c.Millis()
	}
}

func BenchmarkClockOfSQLite(b *testing.B) {
	c := &Clock{store: &Store{dialect: dialect.SQLite{}}}
	c.last.Store(&reading{at: machine.Exact()})
	for b.Loop() {
		_ = c.Millis()
	}
}
