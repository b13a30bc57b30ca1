package task

import "github.com/notyet/notyet/timer"

// Why a run of a timer was not sent.
const (
	WhyMisfire  = "misfire"  // it was late, and notyet-misfire dropped it
	WhyOverlap  = "overlap"  // an earlier one was unfinished
	WhyDisabled = "disabled" // the timer was
)

// Gap is a span in which a timer made no runs or dropped them. A run in it with a task was made all
// the same. JSON stores Gap: the names must not change.
type Gap struct {
	From int64  `json:"from"`         // Unix ms,
	To   int64  `json:"to,omitempty"` // not included; 0: it lasts
	Why  string `json:"why"`
}

// MostGaps is how many gaps a timer remembers, the latest.
const MostGaps = 16

// Miss notes that the runs in a span were dropped. s is the timer's schedule.
func (t *Timer) Miss(s timer.Schedule, from, to int64, why string) {
	if n := len(t.Gaps); n > 0 {
		last := &t.Gaps[n-1]
		next, ok := s.Next(last.To - 1)
		if last.Why == why && last.To != 0 && last.From <= from && (!ok || next >= from) { // no run lies between the two
			last.To = max(last.To, to)
			return
		}
	}
	t.note(Gap{from, to, why})
}

// note copies the gaps: the timer before may share them.
func (t *Timer) note(g Gap) {
	t.Gaps = append(append([]Gap(nil), t.Gaps[max(len(t.Gaps)+1-MostGaps, 0):]...), g)
}

// resume notes that the timer makes runs again from an instant on.
func (t *Timer) resume(now int64) {
	gaps := append([]Gap(nil), t.Gaps...)
	for i := range gaps {
		if gaps[i].To == 0 {
			gaps[i].To = now
		}
	}
	t.Gaps = gaps
}

// gap returns why there was no run at an instant; "": not known.
func (t *Timer) gap(at int64) string {
	for _, g := range t.Gaps {
		if g.From <= at && (g.To == 0 || at < g.To) {
			return g.Why
		}
	}
	return ""
}
