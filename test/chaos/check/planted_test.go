package check

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/notyet/notyet/test/chaos/history"
)

func TestSampleIsSound(t *testing.T) {
	r := Run(Sample(), Bounds{})
	require.Empty(t, r.Findings)
	require.Equal(t, map[string]int{"delivered": 19, "kept": 3, "merged": 6, "cancelled": 3, "replaced": 1, "stale": 2, "rejected": 1, "pending": 1, "dead": 1, "unknown": 1}, r.Figures.Fates)
	require.Equal(t, map[string]int{"kill-dispatcher": 1}, r.Figures.Copies)
	require.EqualValues(t, 1, r.Figures.Earliest)
	require.Positive(t, r.Figures.Ordered)
	require.Zero(t, r.Figures.Undecided)
	require.Equal(t, 23, r.Figures.Linear)
}

func TestPlantedBugsAreCaught(t *testing.T) {
	for _, b := range Bugs {
		t.Run(b.Name, func(t *testing.T) { require.True(t, b.Caught(), "%s went unnoticed", b.Invariant) })
	}
}

// After a restore the database decides again about a task that had died: a report that had come too
// late may now be in time.
func TestAnEndMayChangeWhereTheDatabaseWasSetBack(t *testing.T) {
	h := Sample()
	at := dieFirst(h, "reported")
	h.Faults = append(h.Faults, history.Fault{N: 2, Kind: "mysql-restored", Start: at - 50, End: at - 10, Rewinds: true, Effect: true})
	r := Run(h, Bounds{})
	require.Empty(t, r.Findings)
	require.Equal(t, 1, r.Figures.Reversed)
}

func TestOnlyTheOrderShowsTheseBugs(t *testing.T) {
	for _, b := range stormBugs {
		t.Run(b.Name, func(t *testing.T) { require.True(t, b.SumsHold(), "%v", b) })
	}
}
