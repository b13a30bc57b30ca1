package check

import "github.com/notyet/notyet/test/chaos/history"

// setbackBugs are mistakes in what follows when the database has forgotten its last commits.
var setbackBugs = []Bug{
	{"a request that was forgotten is not decided again", "linear", func(h *history.History) { eventOf(h, "forgetful", "scheduled", 3).At = lostFrom + 510 }},
	{"what was decided before the lost time is decided anew", "linear", func(h *history.History) {
		again := *eventOf(h, "forgetful", "scheduled", 1)
		again.At = backAt + 1000
		again.State = "stale"
		h.Events = append(h.Events, again)
	}},
	{"a look shows the time before what was lost again", "linear", func(h *history.History) {
		seen := &h.Looks[len(h.Looks)-1]
		seen.Call, seen.Return = backAt+2000, backAt+2002
	}},
	{"a cancel that is decided again is answered by what was forgotten", "linear", func(h *history.History) {
		eventOf(h, "forgetful", "scheduled", 3).Due--
		eventOf(h, "forgetful", "cancelled", 2).Due--
	}},
	{"what is cancelled once more goes out", "linear", func(h *history.History) {
		o := *nthOp(h, "forgetful", 2)
		(&sample{h}).publish(&o, 1, o.Due+1, "two", 2)
	}},
	{"a delivery that is forgotten gets out of a cancel's way", "linear", func(h *history.History) { eventOf(h, "resent", "too_late", 1).State = "cancelled" }},
	{"too_late is told of what nobody has sent", "linear", func(h *history.History) { unpublish(h, "proven", 1) }},
}
