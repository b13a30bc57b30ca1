package figures

import (
	"maps"
	"slices"
)

// Total is the sum of several processes' figures. The zero value is the sum of none.
type Total struct {
	Processes int
	Lateness  Histogram          // of the last minute's deliveries
	PerSecond map[string]float64 // what was counted, over the last minute
	Levels    map[string]int64
	More      int // targets that do not answer and that no process names

	targets map[string]bool
}

// Add adds the figures of a process.
func (t *Total) Add(n Now) {
	if t.targets == nil {
		t.PerSecond, t.Levels, t.targets = map[string]float64{}, map[string]int64{}, map[string]bool{}
	}
	t.Processes++
	t.Lateness = t.Lateness.plus(n.Last.Lateness, 1)
	for name, count := range n.Last.N {
		t.PerSecond[name] += float64(count) * 1000 / float64(n.Window)
	}
	for name, level := range n.Levels {
		if most[name] {
			t.Levels[name] = max(t.Levels[name], level)
		} else {
			t.Levels[name] += level
		}
	}
	for _, name := range n.Targets {
		t.targets[name] = true
	}
	t.More += n.More
}

// Targets returns the names of the targets without an answer, in order.
func (t *Total) Targets() []string { return slices.Sorted(maps.Keys(t.targets)) }

// most are levels of which the highest counts: of the whole installation, or without a sum.
var most = map[string]bool{
	Unclaimed: true, Unsettled: true, Standing: true, QuotaWait: true, LetterBytes: true, SendLogFull: true, Unanswered: true, Overdue: true, TokensUnusable: true,
}
