package task

// An audit's answers about a run without a task, or with a dropped one.
const (
	RunComing      = "coming"       // the timer has still to make it
	RunMissing     = "missed"       // it was not sent, and will not be
	RunNotExpected = "not_expected" // the timer was not to make it
	RunUnknown     = "unknown"      // nothing says whether it was sent
)

// Untold is the fate of a run of the timer's expression without a task. Before remembered, nobody
// knows whether a run had one.
func (t *Timer) Untold(at, now, remembered int64) (state, why string) {
	d := t.Definition
	switch {
	case at < d.From && d.From != d.Set:
		return RunNotExpected, "before_from"
	case d.Until != 0 && at > d.Until:
		return RunNotExpected, "after_until"
	case t.Makes(at):
		return RunComing, ""
	case at > now:
		return RunNotExpected, WhyDisabled
	case at < t.Created:
		return RunNotExpected, "not_set"
	case at < remembered:
		return RunUnknown, "forgotten"
	}
	if why := t.gap(at); why != "" {
		return RunMissing, why
	}
	if at < d.Set {
		return RunUnknown, "replaced"
	}
	return RunUnknown, "no_trace"
}

// Dropped says why a run is missing that was dropped when due.
func (t *Timer) Dropped(at int64) string {
	if why := t.gap(at); why != "" {
		return why
	}
	return "dropped"
}
