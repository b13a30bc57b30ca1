package timer

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

func at(t *testing.T, text string) int64 {
	t.Helper()
	instant, err := time.Parse(time.RFC3339, text)
	require.NoError(t, err)
	return instant.UnixMilli()
}

func TestDefinitionsThatMakeNoSense(t *testing.T) {
	from := at(t, "2027-01-01T00:00:00Z")
	for name, c := range map[string]struct {
		def   Definition
		field string
	}{
		"neither":             {Definition{From: from}, "cron"},
		"both":                {Definition{Cron: "* * * * *", Every: time.Minute, From: from}, "cron"},
		"too often":           {Definition{Every: 999 * time.Millisecond, From: from}, "every"},
		"below a millisecond": {Definition{Every: time.Second + 1, From: from}, "every"},
		"negative":            {Definition{Every: -time.Minute, From: from}, "every"},
		"never":               {Definition{Cron: "0 0 30 2 *", From: from}, "cron"},
		"not before until":    {Definition{Cron: "0 0 1 7 *", From: from, Until: at(t, "2027-06-01T00:00:00Z")}, "cron"},
		"until before from":   {Definition{Every: time.Minute, From: from, Until: from - 1}, "until"},
		"a zone that is none": {Definition{Every: time.Minute, From: from, Zone: "Europe/Nowhere"}, "timezone"},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := New(c.def)
			var wrong *Error
			require.ErrorAs(t, err, &wrong)
			require.Equal(t, c.field, wrong.Field)
		})
	}
}

// TestAStoredZoneIsStillRead: a timer that was set before its name was refused runs on.
func TestAStoredZoneIsStillRead(t *testing.T) {
	if _, err := time.LoadLocation("Europe/./Berlin"); err != nil {
		t.Skip("no zone files on this machine, and only those have such names")
	}
	s, err := Parse(Definition{Cron: "30 2 * * *", Zone: "Europe/./Berlin"})
	require.NoError(t, err)
	run, ok := s.Next(at(t, "2027-01-01T00:00:00Z"))
	require.True(t, ok)
	require.Equal(t, at(t, "2027-01-01T01:30:00Z"), run)
}

func TestEveryCountsFromFrom(t *testing.T) {
	from := at(t, "2027-01-01T00:00:00Z") + 5
	s, err := New(Definition{Every: 1500 * time.Millisecond, From: from, Until: from + 4500})
	require.NoError(t, err)
	var runs []int64
	for run, ok := s.Next(0); ok; run, ok = s.Next(run) {
		runs = append(runs, run-from)
	}
	require.Equal(t, []int64{0, 1500, 3000, 4500}, runs)
	run, ok := s.Next(from + 1)
	require.True(t, ok)
	require.Equal(t, from+1500, run)
}

func TestFromAndUntilBoundCron(t *testing.T) {
	s, err := New(Definition{Cron: "0 12 * * *", From: at(t, "2027-01-01T12:00:00Z"), Until: at(t, "2027-01-02T12:00:00Z")})
	require.NoError(t, err)
	run, ok := s.Next(0)
	require.True(t, ok)
	require.Equal(t, at(t, "2027-01-01T12:00:00Z"), run, "the first instant counts")
	run, ok = s.Next(run)
	require.True(t, ok)
	require.Equal(t, at(t, "2027-01-02T12:00:00Z"), run, "so does the last")
	_, ok = s.Next(run)
	require.False(t, ok)
}

func TestJitterFollowsFromTimerAndRun(t *testing.T) {
	s, err := New(Definition{Every: time.Minute, From: 1_800_000_000_000, Jitter: 10 * time.Second})
	require.NoError(t, err)
	seen := map[int64]bool{}
	for i := range int64(200) {
		run := 1_800_000_000_000 + i*60_000
		due := s.Due("orders", "t1", run)
		require.Equal(t, due, s.Due("orders", "t1", run))
		require.GreaterOrEqual(t, due, run)
		require.LessOrEqual(t, due, run+10_000)
		seen[due-run] = true
	}
	require.Greater(t, len(seen), 150, "offsets are spread")
	require.NotEqual(t, s.Due("orders", "t1", 1_800_000_000_000), s.Due("orders", "t2", 1_800_000_000_000))
}

func TestRunIDIs14BytesLongerThanTheTimersID(t *testing.T) {
	const last = 9_999_999_999_999 // of 13 digits: the year 2286
	require.Equal(t, "t1@9999999999999", RunID("t1", last))
}

func TestSplitRunID(t *testing.T) {
	for id, want := range map[string]string{"t@5": "t", "a@b@1700000000000": "a@b", "ü@0": "ü"} {
		timer, run, ok := SplitRunID(id)
		require.True(t, ok, id)
		require.Equal(t, want, timer)
		require.Equal(t, id, RunID(timer, run))
	}
	for _, id := range []string{"", "t", "t@", "@5", "t@05", "t@+5", "t@5 ", "t@99999999999999999999"} {
		_, _, ok := SplitRunID(id)
		require.False(t, ok, id)
	}
}
