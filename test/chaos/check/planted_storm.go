package check

import (
	"slices"

	"github.com/notyet/notyet/test/chaos/history"
)

// stormBugs leave all sums as they are: only the order of one identity's history shows them.
var stormBugs = []Bug{
	{"a look shows an older version", "linear", func(h *history.History) {
		*look(h, 1) = history.Look{Topic: "target", ID: "stormy", State: "pending", Due: base + 230_000, Version: 1, Op: nthOp(h, "stormy", 1).N, Call: look(h, 1).Call, Return: look(h, 1).Return}
	}},
	{"a look shows what was cancelled as pending", "linear", func(h *history.History) { look(h, 2).State = "pending" }},
	{"a look does not find a task that is there", "linear", func(h *history.History) { look(h, 3).State = "" }},
	{"looks go back in time", "linear", func(h *history.History) {
		a, b := look(h, 2), look(h, 3)
		a.Call, a.Return, b.Call, b.Return = b.Call, b.Return, a.Call, a.Return
	}},
	{"a cancel is answered about another task of the id", "linear", func(h *history.History) { eventOf(h, "stormy", "cancelled", 1).Due -= 1000 }},
	{"kept is answered for what was replaced", "linear", func(h *history.History) { eventOf(h, "stormy", "kept", 1).Due -= 1000 }},
	{"an older version is taken after a request without one", "linear", func(h *history.History) {
		again, old := nthOp(h, "stormy", 4), nthOp(h, "stormy", 6)
		*eventOf(h, "stormy", "stale", 1) = history.Event{Topic: "target", ID: "stormy", State: "scheduled", Due: old.Due, At: old.Accepted + 10, Request: eventOf(h, "stormy", "stale", 1).Request}
		look(h, 3).Due, look(h, 3).Op, look(h, 3).Version = old.Due, old.N, 1
		d := delivery(h, "stormy", 1)
		d.Op, d.Hash, d.Key = old.N, old.Hash, d.Key+again.ID
	}},
	{"too_late is answered hours before the task may have been claimed", "linear", func(h *history.History) {
		eventOf(h, "stormy", "cancelled", 1).State = "too_late"
		look(h, 2).State = "pending"
	}},
	{"an update is merged into what was delivered", "linear", func(h *history.History) { eventOf(h, "updated", "scheduled", 2).State = "merged" }},
	{"what was fired is delivered as the request before", "linear", func(h *history.History) {
		before := nthOp(h, "stormy", 2)
		delivery(h, "stormy", 1).Op, delivery(h, "stormy", 1).Hash = before.N, before.Hash
	}},
	{"a stop of what waits is too late", "linear", func(h *history.History) { eventOf(h, "stopped", "stopped", 1).State = "too_late" }},
	{"a stop forgets its version", "linear", func(h *history.History) {
		stale := eventOf(h, "stopped", "stale", 1)
		stale.State, stale.Due = "scheduled", stale.Due+9000
		(&sample{h}).publish(nthOp(h, "stopped", 5), 1, stale.Due+1, "two", 2)
	}},
	{"a report ends what was stopped", "linear", func(h *history.History) {
		h.Events = append(h.Events, history.Event{Topic: "target", ID: "stopped", State: "succeeded", Due: op(h, "stopped").Due, At: op(h, "stopped").Due + 1310})
		look(h, 5).State = "succeeded"
	}},
	{"the answer to a request names another one", "linear", func(h *history.History) {
		eventOf(h, "stormy", "kept", 1).Request = eventOf(h, "stormy", "kept", 2).Request
	}},
	{"once is answered about the task before", "linear", func(h *history.History) { eventOf(h, "stormy", "kept", 2).Due = base + 231_000 }},
}

// look returns the n-th look, from 1.
func look(h *history.History, n int) *history.Look { return &h.Looks[n-1] }

// SumsHold reports whether only the order of an identity shows the bug.
func (b Bug) SumsHold() bool {
	h := Sample()
	b.plant(h)
	return !slices.ContainsFunc(Run(h, Bounds{}).Findings, func(f Finding) bool { return f.Invariant != b.Invariant })
}
