package check

import (
	"slices"
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

// While a database comes back nothing can be read from it: the first sample after that shows that it was set back.
func TestSetBackBetweenTwoSamples(t *testing.T) {
	sample := func(part int32, at, committed, stored int64) history.OffsetSample {
		return history.OffsetSample{At: at, Topic: "in", Partition: part, Committed: committed, Stored: stored}
	}
	h := &history.History{
		Faults:  []history.Fault{{Kind: "mysql-forgets", Start: 100, End: 200, Rewinds: true, Effect: true}},
		Offsets: []history.OffsetSample{sample(0, 50, 5, 5), sample(1, 50, 5, 5), sample(0, 210, 5, 3), sample(1, 210, 5, 5), sample(0, 220, 5, 4), sample(0, 230, 5, 5)},
	}
	judged := func() []Finding { c := newChecker(h, Bounds{}); c.judgeOffsets(); return c.Findings }
	require.Empty(t, judged())
	h.Offsets = append(h.Offsets, sample(1, 240, 7, 6))
	require.Len(t, judged(), 1, "another partition had caught up")
	h.Offsets = append(h.Offsets, sample(0, 250, 7, 6))
	require.Len(t, judged(), 2, "and so had this one")
}

func TestOnlyTheOrderShowsTheseBugs(t *testing.T) {
	for _, b := range stormBugs {
		t.Run(b.Name, func(t *testing.T) { require.True(t, b.SumsHold(), "%v", b) })
	}
}

// The database forgets a delivery, and a cancel that is read again is answered as if there had been none. No delivery may follow the answer.
func TestACancelMayBeAnsweredAgainWhereTheDatabaseWasSetBack(t *testing.T) {
	for _, c := range []struct {
		late, ago int64 // when the task is published, and how long before the answer the database is set back
		found     bool
	}{{-100, 50, false}, {-100, 2000, false}, {-100, 2200, true}, {100, 50, true}} {
		late := c.late
		h := Sample()
		at := event(h, "cancelled").At
		publishAgain(h, op(h, "cancelled"), 1, at+late-op(h, "cancelled").Due)
		delivery(h, "cancelled", 1).Due = at - 200
		op(h, "cancelled").Due, event(h, "cancelled").Due = at-200, at-200
		h.Faults = append(h.Faults, history.Fault{N: 2, Kind: "mysql-forgets", Start: at - c.ago, End: at - c.ago + 40, Rewinds: true, Doubles: true, Effect: true})
		found := slices.ContainsFunc(Run(h, Bounds{}).Findings, func(f Finding) bool { return f.ID == "cancelled" })
		require.Equal(t, c.found, found, c)
	}
}

// A database that was set back has forgotten that it answered a replacement, or a fire. Where it was set back before the answer, or not at
// all, the answer holds.
func TestAnAnswerMayBeForgottenWhereTheDatabaseWasSetBack(t *testing.T) {
	for name, plant := range map[string]func(*history.History) (answered, published int64){
		"replaced": func(h *history.History) (int64, int64) {
			publishAgain(h, op(h, "replaced"), 1, 1)
			return op(h, "replaced").Due - 7000, op(h, "replaced").Due + 1
		},
		"fired": func(h *history.History) (int64, int64) {
			d, o := delivery(h, "fired", 1), op(h, "fired")
			d.Due, d.At = o.Due, o.Due+1
			return event(h, "fired").At, d.At
		},
	} {
		t.Run(name, func(t *testing.T) {
			for forgotten, span := range map[bool][2]int64{true: {-10, 10}, false: {-20, -10}} {
				h := Sample()
				answered, published := plant(h)
				require.Less(t, answered, published)
				h.Faults = append(h.Faults, history.Fault{N: 2, Kind: "mysql-forgets", Start: answered + span[0], End: answered + span[1], Rewinds: true, Doubles: true, Effect: true})
				found := slices.ContainsFunc(Run(h, Bounds{}).Findings, func(f Finding) bool { return f.ID == name && (f.Invariant == "I6" || f.Invariant == "I5") })
				require.Equal(t, !forgotten, found)
			}
		})
	}
}
