package check

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/notyet/notyet/test/chaos/history"
)

func TestSampleIsSound(t *testing.T) {
	r := Run(Sample(), Bounds{})
	require.Empty(t, r.Findings)
	require.Equal(t, map[string]int{"delivered": 20, "kept": 3, "merged": 6, "cancelled": 3, "replaced": 1, "stale": 2, "rejected": 3, "pending": 1, "dead": 1, "unknown": 1}, r.Figures.Fates)
	require.Equal(t, map[string]int{"kill-dispatcher": 1, "mysql-forgets": 1}, r.Figures.Copies)
	require.EqualValues(t, 1, r.Figures.Earliest)
	require.Positive(t, r.Figures.Ordered)
	require.Zero(t, r.Figures.Undecided)
	require.Equal(t, 29, r.Figures.Linear)
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
	h.Faults = append(h.Faults, history.Fault{N: 2, Kind: "mysql-restored", Start: at - 200, End: at - 10, Rewinds: true, Effect: true})
	r := Run(h, Bounds{})
	require.Empty(t, r.Findings)
	require.Equal(t, 1, r.Figures.Reversed)
}

// Likewise, the other way round: the report that was in time is read again when the attempts are used up. One that the database still knows
// has ended the task: it came after the set-back, or before what was forgotten.
func TestADeathMayFollowWhereTheDatabaseWasSetBack(t *testing.T) {
	for ago, found := range map[int64]bool{20: true, 50: false, 150: true} { // how long before the death the database was set back
		h := Sample()
		i := slices.IndexFunc(h.Events, func(e history.Event) bool { return e.ID == "exhausted" && e.State == "dead" })
		succeeded, at := h.Events[i], h.Events[i].At
		succeeded.State, succeeded.At = "succeeded", at-100
		h.Events = slices.Insert(h.Events, i, succeeded)
		h.Reports = append(h.Reports, history.Report{Topic: "target", ID: "exhausted", Attempt: 1, Status: "ok", At: at - 100})
		h.Faults = append(h.Faults, history.Fault{N: 2, Kind: "mysql-restored", Start: at - ago - 60, End: at - ago, Rewinds: true, Effect: true})
		require.Equal(t, found, slices.ContainsFunc(Run(h, Bounds{}).Findings, func(f Finding) bool { return f.ID == "exhausted" && f.What == "succeeded and died" }))
	}
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
	}{{-100, 150, false}, {-100, 2000, false}, {-100, 2200, true}, {100, 50, true}} {
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

// A database that was set back may decide again, and in another way: what was delivered has expired by then, a fire comes too late, so that
// its version is not taken, and a request is kept for a task that had ended. Without a set-back in between, each is found.
func TestASecondDecisionMayDifferWhereTheDatabaseWasSetBack(t *testing.T) {
	for name, plant := range map[string]func(*sample) (first, second int64){
		"expired": func(s *sample) (int64, int64) {
			s.plain("expired", base+20_000, 2)
			s.Ops[len(s.Ops)-1].MayDie = true
			s.Letters = append(s.Letters, history.Letter{Topic: "target", ID: "expired", Kind: "expired", DiedAt: base + 24_000})
			return base + 20_002, base + 24_000
		},
		"fired again": func(s *sample) (int64, int64) {
			older := *s.op(history.Op{Kind: history.Schedule, ID: "fired again", Due: base + 22_000, Version: 5, AllEvents: true})
			fire := *s.op(history.Op{Kind: history.Fire, ID: "fired again", Version: 9})
			newer := *s.op(history.Op{Kind: history.Schedule, ID: "fired again", Due: base + 22_001, Version: 8, AllEvents: true})
			fired := older
			fired.Due = base + 20_000
			s.answer(&older, "scheduled", base+22_000, base+18_000)
			s.answer(&fire, "fired", base+20_000, base+20_000)
			s.publish(&fired, 1, base+20_001, "one", 1)
			s.answer(&newer, "stale", base+20_000, base+20_100)
			s.answer(&fire, "too_late", base+22_000, base+24_000)
			s.publish(&older, 1, base+24_100, "one", 1)
			s.answer(&newer, "scheduled", base+22_001, base+24_150)
			s.publish(&newer, 1, base+24_200, "one", 1)
			return base + 20_000, base + 24_000
		},
		"kept again": func(s *sample) (int64, int64) {
			first := *s.op(history.Op{Kind: history.Schedule, ID: "kept again", Due: base + 20_000, Version: -1, IfExists: history.Keep, AllEvents: true})
			second := *s.op(history.Op{Kind: history.Schedule, ID: "kept again", Due: base + 26_000, Version: -1, IfExists: history.Keep, AllEvents: true})
			third := *s.op(history.Op{Kind: history.Schedule, ID: "kept again", Due: base + 29_000, Version: -1, IfExists: history.Keep, AllEvents: true})
			s.answer(&first, "scheduled", base+20_000, base+19_000)
			s.publish(&first, 1, base+20_001, "one", 1)
			s.answer(&second, "scheduled", base+26_000, base+21_000)
			s.answer(&second, "kept", base+20_000, base+24_000)
			s.publish(&first, 1, base+24_500, "one", 1)
			s.answer(&third, "scheduled", base+29_000, base+27_000)
			s.publish(&third, 1, base+29_001, "one", 1)
			return base + 21_000, base + 24_000
		},
	} {
		for forgotten, span := range map[bool][2]int64{true: {-1500, 500}, false: {-9000, -8000}} {
			t.Run(fmt.Sprint(name, forgotten), func(t *testing.T) {
				s := &sample{History: Sample()}
				first, second := plant(s)
				require.Less(t, first, second)
				s.Faults = append(s.Faults, history.Fault{N: 2, Kind: "mysql-forgets", Start: first + span[0], End: first + span[1], Rewinds: true, Doubles: true, Effect: true})
				found := slices.DeleteFunc(Run(s.History, Bounds{}).Findings, func(f Finding) bool { return f.ID != name })
				require.Equal(t, !forgotten, len(found) > 0, "%v", found)
			})
		}
	}
}

// A dispatcher that was paused while the database forgot its claim may deliver, when it wakes, what has expired meanwhile. Nobody else may.
func TestWhatExpiredMayComeFromADispatcherThatWakes(t *testing.T) {
	const due = base + 20_000
	for name, c := range map[string]struct {
		paused, from, to, published int64
		target                      string
		found                       bool
	}{
		"on waking":                  {due - 1000, due - 3000, due + 3000, due + 9000, "dispatcher-0", false},
		"long after it woke":         {due - 1000, due - 3000, due + 3000, due + 13_000, "dispatcher-0", true},
		"while it was paused":        {due - 1000, due - 3000, due + 3000, due + 7000, "dispatcher-0", true},
		"paused later":               {due + 3500, due - 3000, due + 3000, due + 9000, "dispatcher-0", true},
		"a scanner":                  {due - 1000, due - 3000, due + 3000, due + 9000, "scanner-0", true},
		"forgotten after it expired": {due - 1000, due + 5000, due + 6000, due + 9000, "dispatcher-0", true},
		"nothing was ever forgotten": {due - 1000, 0, 0, due + 9000, "dispatcher-0", true},
	} {
		t.Run(name, func(t *testing.T) {
			s := &sample{History: Sample()}
			s.plain("late", due, c.published-due)
			s.Ops[len(s.Ops)-1].MayDie = true
			s.Letters = append(s.Letters, history.Letter{Topic: "target", ID: "late", Kind: "expired", DiedAt: due + 4000})
			s.Faults = append(s.Faults, history.Fault{N: 2, Kind: "pause", Target: c.target, Start: c.paused, End: due + 8500, Doubles: true, Effect: true})
			if c.from > 0 {
				s.Faults = append(s.Faults, history.Fault{N: 3, Kind: "mysql-forgets", Start: c.from, End: c.to, Rewinds: true, Doubles: true, Effect: true})
			}
			require.Equal(t, c.found, slices.ContainsFunc(Run(s.History, Bounds{}).Findings, func(f Finding) bool { return f.ID == "late" && strings.Contains(f.What, "expired") }))
		})
	}
}

// A broker in trouble takes a record late, whose task the database has forgotten and has stored and replaced again meanwhile.
func TestAReplacedTaskMayStillBeWithABrokerInTrouble(t *testing.T) {
	for trouble, found := range map[bool]bool{true: false, false: true} {
		h := Sample()
		publishAgain(h, op(h, "replaced"), 1, 1)
		answered, published := op(h, "replaced").Due-7000, op(h, "replaced").Due+1
		h.Faults = append(h.Faults, history.Fault{N: 2, Kind: "mysql-forgets", Start: answered - 100, End: answered - 50, Rewinds: true, Doubles: true, Effect: true})
		if trouble {
			h.Faults = append(h.Faults, history.Fault{N: 3, Kind: "no leader", Start: answered - 100, End: published - 10, Doubles: true, Effect: true})
		}
		require.Equal(t, found, slices.ContainsFunc(Run(h, Bounds{}).Findings, func(f Finding) bool { return f.ID == "replaced" && f.Invariant == "I6" }))
	}
}

// An answer of commits that the database forgot may reach its topic after the set-back. By when it says that it was decided, it is known from one
// that was given afterwards.
func TestAnAnswerMayBeOnItsWayWhenTheDatabaseIsSetBack(t *testing.T) {
	for decided, found := range map[int64]bool{-30: false, -10: true} {
		h := Sample()
		publishAgain(h, op(h, "replaced"), 1, 1)
		answer := &h.Events[slices.IndexFunc(h.Events, func(e history.Event) bool { return e.ID == "replaced" && e.Due == op(h, "replaced").Due+1000 })]
		answer.Decided = answer.At + decided
		h.Faults = append(h.Faults, history.Fault{N: 2, Kind: "mysql-forgets", Start: answer.At - 100, End: answer.At - 20, Rewinds: true, Doubles: true, Effect: true})
		require.Equal(t, found, slices.ContainsFunc(Run(h, Bounds{}).Findings, func(f Finding) bool { return f.ID == "replaced" && f.Invariant == "I6" }))
	}
}

// A task was stopped after attempt 2 of the life that the database has begun anew. A broker in trouble took attempt 3 of the life before in
// between: no attempt follows the stop. One that was handed over after the set-back is of the same life, and one published after the stop follows it.
func TestAStopCountsTheAttemptsOfItsLife(t *testing.T) {
	for name, c := range map[string]struct {
		handed, published int64 // beside the set-back, beside the stop
		found             bool
	}{
		"of the life before":     {-60, -100, false},
		"of the same life":       {60, -100, true},
		"published after a stop": {-60, 100, true},
	} {
		t.Run(name, func(t *testing.T) {
			h := Sample()
			stop := &h.Events[slices.IndexFunc(h.Events, func(e history.Event) bool { return e.ID == "stopped" && e.State == "stopped" })]
			back := stop.At - 600
			h.Faults = append(h.Faults, history.Fault{N: 2, Kind: "mysql-forgets", Start: back - 100, End: back, Rewinds: true, Doubles: true, Effect: true})
			(&sample{h}).publish(op(h, "stopped"), 3, stop.At+c.published, "two", 2)
			h.Sent[len(h.Sent)-2].At = back + c.handed
			require.Equal(t, c.found, slices.ContainsFunc(Run(h, Bounds{}).Findings, func(f Finding) bool {
				return f.ID == "stopped" && strings.HasPrefix(f.What, "stopped was answered after attempt 2")
			}))
		})
	}
}
