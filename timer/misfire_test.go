package timer

import (
	"fmt"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// released returns the runs that are delivered after an outage from one instant to another: those
// that fell due in it are judged together when it ends.
func released(t *testing.T, def Definition, from, to int64, tolerance time.Duration) (delivered, dropped []int64) {
	t.Helper()
	s, err := New(def)
	require.NoError(t, err)
	for run, ok := s.Next(from - 1); ok && run <= to; run, ok = s.Next(run) {
		if Dropped(s.DropFrom("orders", "t", run), to, tolerance) {
			dropped = append(dropped, run)
		} else {
			delivered = append(delivered, run)
		}
	}
	return delivered, dropped
}

func TestMissedRuns(t *testing.T) {
	const minute = 60_000
	from := at(t, "2027-01-01T00:00:00Z")
	late := from + 5*minute + 500 // runs at 0 to 5 min, of which the last two are no more than a minute late
	for _, c := range []struct {
		name      string
		misfire   Misfire
		until     int64
		tolerance time.Duration
		delivered []int64 // minutes
	}{
		{"once is the default", "", 0, time.Minute, []int64{3, 4, 5}[1:]},
		{"once: the latest of the missed, beside what is not missed", MisfireOnce, 0, time.Minute, []int64{4, 5}},
		{"skip: what is not missed", MisfireSkip, 0, time.Minute, []int64{5}},
		{"all", MisfireAll, 0, time.Minute, []int64{0, 1, 2, 3, 4, 5}},
		{"once, all missed", MisfireOnce, 0, 100 * time.Millisecond, []int64{5}},
		{"skip, all missed", MisfireSkip, 0, 100 * time.Millisecond, nil},
		{"all, all missed", MisfireAll, 0, 100 * time.Millisecond, []int64{0, 1, 2, 3, 4, 5}},
		{"once: the last run of all is the latest of the missed", MisfireOnce, 3 * minute, time.Minute, []int64{3}},
	} {
		for kind, def := range map[string]Definition{
			"every": {Every: time.Minute, From: from, Misfire: c.misfire},
			"cron":  {Cron: "* * * * *", From: from, Misfire: c.misfire},
		} {
			t.Run(c.name+"/"+kind, func(t *testing.T) {
				if c.until > 0 {
					def.Until = from + c.until
				}
				delivered, _ := released(t, def, from, late, c.tolerance)
				var minutes []int64
				for _, run := range delivered {
					minutes = append(minutes, (run-from)/minute)
				}
				require.Equal(t, c.delivered, minutes)
			})
		}
	}
}

// TestOnceDeliversOneOfTheMissed: whatever the timer, the tolerance and the jitter, of those that are
// missed once delivers exactly one, skip none and all every one.
func TestOnceDeliversOneOfTheMissed(t *testing.T) {
	rng := rand.New(rand.NewPCG(3, 4))
	for range 150 {
		from := at(t, "2027-03-27T00:00:00Z") + rng.Int64N(10*86_400_000)
		def := Definition{From: from, Zone: "Europe/Berlin"}
		if rng.IntN(2) == 0 {
			def.Every = time.Duration(1+rng.Int64N(7200)) * time.Second
		} else {
			def.Cron = fmt.Sprintf("%s %s * * * *", someMinutes(rng), someMinutes(rng))
		}
		end := from + rng.Int64N(6*3_600_000)
		tolerance := time.Duration(rng.Int64N(120_000)) * time.Millisecond
		missed := 0
		s, err := New(def)
		require.NoError(t, err)
		for run, ok := s.Next(from - 1); ok && run+tolerance.Milliseconds() < end; run, ok = s.Next(run) {
			missed++
		}
		for misfire, want := range map[Misfire]int{MisfireOnce: min(missed, 1), MisfireSkip: 0, MisfireAll: min(missed, MostMissed)} {
			def.Misfire = misfire
			delivered, dropped := released(t, def, from, end, tolerance)
			late := 0
			for _, run := range delivered {
				if run+tolerance.Milliseconds() < end {
					late++
				}
			}
			if misfire == MisfireAll && def.Every == 0 {
				want = missed // see Latest, which bounds it when the runs are made
			}
			require.Equal(t, want, late, "%s of %d missed by %+v within %v", misfire, missed, def, tolerance)
			require.Equal(t, missed-want, len(dropped))
		}
	}
}

// TestLatestEqualsASlowReference also shows that a span of decades is looked through in few steps.
func TestLatestEqualsASlowReference(t *testing.T) {
	rng := rand.New(rand.NewPCG(5, 6))
	for range 60 {
		from := at(t, "2027-01-01T00:00:00Z") + rng.Int64N(1000)
		def := Definition{From: from}
		if rng.IntN(2) == 0 {
			def.Every = time.Duration(1000+rng.Int64N(100_000)) * time.Millisecond
		} else {
			def.Cron = fmt.Sprintf("%s %s %s * * *", someMinutes(rng), someMinutes(rng), []string{"*", "3", "*/5"}[rng.IntN(3)])
		}
		if rng.IntN(3) == 0 {
			def.Until = from + 8*3_600_000 + rng.Int64N(20*3_600_000)
		}
		s, err := New(def)
		require.NoError(t, err)
		to, n := from+rng.Int64N(30*3_600_000)-1000, 1+rng.IntN(20)
		start := from + rng.Int64N(20*3_600_000) - 3_600_000
		var all []int64
		for run, ok := s.Next(start - 1); ok && run <= to; run, ok = s.Next(run) {
			all = append(all, run)
		}
		got, ok := s.Latest(start, to, n)
		require.Equal(t, len(all) > 0, ok, "%+v", def)
		if ok {
			require.Equal(t, all[max(0, len(all)-n)], got, "%+v, the latest %d in [%d, %d]", def, n, start, to)
		}
	}
	began := at(t, "1997-01-01T00:00:00Z")
	for _, expression := range []string{"* * * * * *", "* * * 1 1 *", "0 0 29 2 *"} {
		s, err := New(Definition{Cron: expression, From: began})
		require.NoError(t, err)
		_, ok := s.Latest(began, at(t, "2027-03-01T00:00:00Z"), MostMissed)
		require.True(t, ok)
	}
}

func someMinutes(rng *rand.Rand) string {
	first := rng.IntN(50)
	return fmt.Sprintf("%d-59/%d", first, 1+rng.IntN(59-first))
}

func TestJitterIsBounded(t *testing.T) {
	from := at(t, "2027-01-01T00:00:00Z")
	for name, c := range map[string]struct {
		def Definition
		bad bool
	}{
		"a quarter of an hour suits every timer": {Definition{Every: time.Second, From: from, Jitter: freeJitter}, false},
		"more, for a timer of every second":      {Definition{Every: time.Second, From: from, Jitter: freeJitter + time.Second}, true},
		"more, for a cron of every second":       {Definition{Cron: "* * * * * *", From: from, Jitter: time.Hour}, true},
		"few on the first days, many on others":  {Definition{Cron: "* * * 1 7 *", From: at(t, "2027-07-01T23:50:00Z"), Jitter: 16 * time.Minute}, true},
		"many, from shortly before midnight":     {Definition{Cron: "* * * * * FRI", From: at(t, "2027-01-01T23:59:50Z"), Jitter: LongestJitter}, true},
		"so many in an hour of each day":         {Definition{Cron: "* 0-14 9 * * *", From: from, Jitter: time.Hour}, false},
		"as many on the next day":                {Definition{Cron: "* 0-14 9 * * *", From: from, Jitter: LongestJitter}, true},
		"no more than so many at all":            {Definition{Cron: "* * * * * *", From: from, Until: from + crowd*1000 - 1, Jitter: time.Hour}, false},
		"one more":                               {Definition{Cron: "* * * * * *", From: from, Until: from + crowd*1000, Jitter: time.Hour}, true},
		"a day, for a daily timer":               {Definition{Cron: "@daily", From: from, Jitter: LongestJitter}, false},
		"a day, for a timer of every two min":    {Definition{Every: 2 * time.Minute, From: from, Jitter: LongestJitter}, false},
		"more than a day":                        {Definition{Cron: "@yearly", From: from, Jitter: LongestJitter + time.Second}, true},
		"negative":                               {Definition{Cron: "@yearly", From: from, Jitter: -1}, true},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := New(c.def)
			if !c.bad {
				require.NoError(t, err)
				return
			}
			var wrong *Error
			require.ErrorAs(t, err, &wrong)
			require.Equal(t, "jitter", wrong.Field)
		})
	}
}
