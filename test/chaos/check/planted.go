package check

import (
	"slices"

	"github.com/notyet/notyet/test/chaos/history"
)

// Bug is a mistake that the checker must find.
type Bug struct {
	Name      string
	Invariant string // the one that it violates
	plant     func(h *history.History)
}

// Caught plants the bug in a sample and reports whether a finding names its invariant.
func (b Bug) Caught() bool {
	h := Sample()
	b.plant(h)
	return slices.ContainsFunc(Run(h, Bounds{}).Findings, func(f Finding) bool { return f.Invariant == b.Invariant })
}

// Bugs are the planted mistakes.
var Bugs = append([]Bug{
	{"a task is lost", "I1", func(h *history.History) { unpublish(h, "first", 1) }},
	{"an acknowledged request is not in the intake", "I1", func(h *history.History) { op(h, "first").Accepted = 0 }},
	{"a cancel is never answered", "I1", func(h *history.History) { untell(h, "cancelled", "cancelled") }},
	{"an invalid request is swallowed", "I1", func(h *history.History) { untell(h, "invalid", "rejected") }},
	{"a request beyond a quota is swallowed", "I1", func(h *history.History) { untell(h, "beyond", "rejected") }},
	{"another request than the lost one is told that it is rejected", "I1", func(h *history.History) { event(h, "beyond").Request = "intake/0/999" }},
	{"a healthy target's task is rejected", "I1", func(h *history.History) { op(h, "beyond").MayDie = false }},
	{"a task that is not due yet is forgotten", "I1", func(h *history.History) { h.Rest = history.Rest{Until: h.Rest.Until} }},
	{"a task dies beside a request that was rejected", "I1", func(h *history.History) {
		h.Letters = append(h.Letters, history.Letter{Topic: "target", ID: "resident", Kind: "rejected"})
	}},
	{"a healthy target's task dies", "I1", func(h *history.History) { op(h, "mortal").MayDie = false }},
	{"a delivery is 1 ms early", "I2", func(h *history.History) { delivery(h, "second", 1).At = op(h, "second").Due - 1 }},
	{"a value is changed on the way", "I3", func(h *history.History) { delivery(h, "second", 1).Hash++ }},
	{"a header is dropped on the way", "I3", func(h *history.History) {
		delivery(h, "third", 1).Hash = history.Hash([]byte("key"), []byte("value"))
	}},
	{"a record is of nobody", "I3", func(h *history.History) { delivery(h, "first", 1).ID = "phantom" }},
	{"a record carries another task's content", "I3", func(h *history.History) { delivery(h, "first", 1).Op = op(h, "second").N }},
	{"a copy has no cause", "I4", func(h *history.History) { h.Faults = nil }},
	{"a fault that doubles nothing doubles a task", "I4", func(h *history.History) { h.Faults[0].Doubles = false }},
	{"a copy comes long after its fault", "I4", func(h *history.History) { copied(h, "doubled").At += 100_000 }},
	{"a copy carries another delivery key", "I4", func(h *history.History) { copied(h, "doubled").Key = "another" }},
	{"two tasks share a delivery key", "I4", func(h *history.History) { delivery(h, "first", 1).Key = delivery(h, "second", 1).Key }},
	{"two attempts share a delivery key", "I4", func(h *history.History) { delivery(h, "reported", 2).Key = delivery(h, "reported", 1).Key }},
	{"a cancelled task is delivered", "I5", func(h *history.History) { publishAgain(h, op(h, "cancelled"), 1, 100) }},
	{"a cancel that overtook its schedule loses", "I6", func(h *history.History) { publishAgain(h, lastOp(h, "overtaken"), 1, 100) }},
	{"too_late is answered and nothing was delivered", "I5", func(h *history.History) { event(h, "cancelled").State = "too_late" }},
	{"a delivery follows a stop", "I5", func(h *history.History) {
		(&sample{h}).publish(nthOp(h, "stopped", 1), 3, op(h, "stopped").Due+5000, "two", 2)
	}},
	{"not_found is answered about a known task", "I5", func(h *history.History) { event(h, "cancelled").State = "not_found" }},
	{"a stale version is delivered", "I6", func(h *history.History) { publishAgain(h, lastOp(h, "replaced"), 1, 100) }},
	{"the old version goes out after the new one was acknowledged", "I6", func(h *history.History) { publishAgain(h, op(h, "replaced"), 1, 1) }},
	{"two tasks of a key change places", "I7", func(h *history.History) {
		h.Deliveries[0].At, h.Deliveries[1].At = base+15_001, base+15_000
	}},
	{"a missing report is not followed by another attempt", "I8", func(h *history.History) {
		unpublish(h, "reported", 2)
		untell(h, "reported", "succeeded")
		h.Reports = h.Reports[1:]
	}},
	{"a redelivery comes before its time", "I8", func(h *history.History) { delivery(h, "exhausted", 2).At -= 500 }},
	{"a redelivery comes far behind its time", "I8", func(h *history.History) { delivery(h, "exhausted", 2).At += 10_000 }},
	{"an attempt follows a report of ok", "I8", func(h *history.History) { publishAgain(h, op(h, "reported"), 3, 15_000) }},
	{"there are more attempts than allowed", "I8", func(h *history.History) { publishAgain(h, op(h, "exhausted"), 3, 7000) }},
	{"attempts are used up and the task is not dead", "I8", func(h *history.History) {
		h.Letters = slices.DeleteFunc(h.Letters, func(l history.Letter) bool { return l.ID == "exhausted" })
	}},
	{"a task that died succeeds", "I8", func(h *history.History) { dieFirst(h, "reported") }},
	{"a task dies twice", "I8", func(h *history.History) {
		h.Letters = append(h.Letters, history.Letter{Topic: "target", ID: "exhausted", Attempt: 2})
	}},
	{"a foreign report ends a task", "I8", func(h *history.History) { h.Reports[0].ID = "nobody" }},
	{"an epoch falls", "I9", func(h *history.History) { h.Slots[2].Epoch = 0 }},
	{"a slot is unclaimed", "I9", func(h *history.History) { h.Slots[2].Claimed, h.Slots[2].Done = base, base }},
	{"an owner goes on when another one has begun", "I9", func(h *history.History) {
		h.Sent = append(h.Sent, history.Sent{Log: "one", Seq: 1, Attempt: 1, At: base + 250_000, Topic: "target", ID: "first", Epoch: 1})
	}},
	{"an offset is committed that is not stored", "I10", func(h *history.History) { h.Offsets[1].Committed++ }},
	{"the index lacks a task", "I11", func(h *history.History) { h.Rest.Index = nil }},
	{"the index holds what is done", "I11", func(h *history.History) { h.Rest.Index = append(h.Rest.Index, history.Entry{Pos: base, Seq: 1}) }},
	{"a task stays in its slot when there are more", "I11", func(h *history.History) { h.Rest.Slots[0] = 2 }},
	{"tasks stay late when the fault is over", "I12", func(h *history.History) { late(h, "doubled", 68_000) }},
	{"work is left when all should be done", "I12", func(h *history.History) { h.Run.Problems = []string{"7 rows are left to do"} }},
	{"a flood holds up another target", "I13", func(h *history.History) {
		h.Faults = append(h.Faults, history.Fault{Kind: Burst, Target: "flood", Start: base + 9000, End: base + 13_000, Effect: true})
		delivery(h, "third", 1).At += 8000
	}},
	{"a record is sent that no send log knows", "I14", func(h *history.History) { h.Sent = h.Sent[2:] }},
	{"what a send log calls acknowledged is not there", "I14", func(h *history.History) { h.Sent[1].Offset = 1 }},
	{"a fault had no effect", "fault", func(h *history.History) { h.Faults[0].Effect = false }},
}, slices.Concat(modeBugs, stormBugs, setbackBugs, attackBugs)...)

func op(h *history.History, id string) *history.Op {
	i := slices.IndexFunc(h.Ops, func(o history.Op) bool { return o.ID == id })
	return &h.Ops[i]
}

func lastOp(h *history.History, id string) *history.Op {
	last := op(h, id)
	for i := range h.Ops {
		if h.Ops[i].ID == id {
			last = &h.Ops[i]
		}
	}
	return last
}

func delivery(h *history.History, id string, attempt int) *history.Delivery {
	i := slices.IndexFunc(h.Deliveries, func(d history.Delivery) bool { return d.ID == id && d.Attempt == attempt })
	return &h.Deliveries[i]
}

// copied returns the last delivery of an id: the copy.
func copied(h *history.History, id string) *history.Delivery {
	last := delivery(h, id, 1)
	for i := range h.Deliveries {
		if h.Deliveries[i].ID == id {
			last = &h.Deliveries[i]
		}
	}
	return last
}

func event(h *history.History, id string) *history.Event {
	i := slices.IndexFunc(h.Events, func(e history.Event) bool { return e.ID == id })
	return &h.Events[i]
}

func untell(h *history.History, id, state string) {
	h.Events = slices.DeleteFunc(h.Events, func(e history.Event) bool { return e.ID == id && e.State == state })
}

func unpublish(h *history.History, id string, attempt int) {
	h.Deliveries = slices.DeleteFunc(h.Deliveries, func(d history.Delivery) bool { return d.ID == id && d.Attempt == attempt })
}

func publishAgain(h *history.History, o *history.Op, attempt int, late int64) {
	(&sample{h}).publish(o, attempt, o.Due+late, "one", 1)
}

// late delays every delivery of an id.
func late(h *history.History, id string, by int64) {
	for i := range h.Deliveries {
		if h.Deliveries[i].ID == id {
			h.Deliveries[i].At += by
		}
	}
}

// dieFirst adds a dead event 100 ms before the succeeded event of a task, and returns when that is.
func dieFirst(h *history.History, id string) int64 {
	i := slices.IndexFunc(h.Events, func(e history.Event) bool { return e.ID == id && e.State == "succeeded" })
	dead := h.Events[i]
	dead.State = "dead"
	dead.At -= 100
	h.Events = slices.Insert(h.Events, i, dead)
	return dead.At + 100
}
