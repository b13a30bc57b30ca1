package check

import (
	"slices"

	"github.com/notyet/notyet/test/chaos/history"
)

// modeBugs are mistakes in what a request does to a task that is there.
var modeBugs = []Bug{
	{"what a keep found is replaced", "I1", func(h *history.History) { unpublish(h, "kept", 1); publishAgain(h, lastOp(h, "kept"), 1, 2) }},
	{"a request that was kept is delivered too", "I3", func(h *history.History) { publishAgain(h, nthOp(h, "kept", 2), 1, 2) }},
	{"a keep goes unanswered", "I1", func(h *history.History) { untell(h, "kept", "kept") }},
	{"a keep is dropped for a task that has been delivered", "I1", func(h *history.History) {
		again := lastOp(h, "kept")
		eventOf(h, "kept", "scheduled", 2).State, eventOf(h, "kept", "kept", 1).Due = "kept", again.Due-3000
		h.Deliveries = slices.DeleteFunc(h.Deliveries, func(d history.Delivery) bool { return d.Op == again.N })
	}},
	{"a keep begins beside what is pending", "I6", func(h *history.History) { delivery(h, "kept", 1).At += 2000 }},
	{"an attempt follows when a keep has begun", "I6", func(h *history.History) { publishAgain(h, op(h, "kept"), 2, 1200) }},
	{"once is scheduled twice", "I4", func(h *history.History) {
		(&sample{h}).tell("once", "scheduled", lastOp(h, "once").Due, base+122_000)
		publishAgain(h, lastOp(h, "once"), 1, 2)
	}},
	{"what is published twice, once, is delivered twice", "I3", func(h *history.History) { publishAgain(h, nthOp(h, "once", 2), 1, 2) }},
	{"of two that ask for once, one is answered", "I1", func(h *history.History) { *eventOf(h, "once", "kept", 2) = history.Event{} }},
	{"what is fired comes again when it was due", "I5", func(h *history.History) { publishAgain(h, op(h, "fired"), 1, 2) }},
	{"what is fired goes when it was due", "I5", func(h *history.History) { *delivery(h, "fired", 1) = unfired(h) }},
	{"what is fired is lost", "I1", func(h *history.History) { unpublish(h, "fired", 1) }},
	{"a task is fired before it was asked for", "I2", func(h *history.History) {
		event(h, "fired").Due -= 100
		delivery(h, "fired", 1).Due -= 100
	}},
	{"what is fired goes before that", "I2", func(h *history.History) { delivery(h, "fired", 1).At -= 10 }},
	{"a fire takes effect after minutes", "I12", func(h *history.History) { op(h, "fired").Due += 600_000; lastOp(h, "fired").Accepted -= 70_000 }},
	{"a fire is answered in two ways", "I5", func(h *history.History) { (&sample{h}).tell("fired", "too_late", 0, base+126_000) }},
	{"a fire goes unanswered", "I1", func(h *history.History) { untell(h, "fired", "fired") }},
	{"too_late is answered to a fire, and nothing was delivered", "I5", func(h *history.History) { unpublish(h, "unfired", 1) }},
	{"not_found is answered to the fire of a known task", "I5", func(h *history.History) { event(h, "unfired").State = "not_found" }},
	{"a cancel is answered in two ways", "I5", func(h *history.History) { (&sample{h}).tell("cancelled", "too_late", 0, base+16_000) }},
	{"an outdated cancel takes effect", "I6", func(h *history.History) { event(h, "outdated").State = "cancelled"; unpublish(h, "outdated", 1) }},
	{"a cancel in time is called outdated", "I6", func(h *history.History) { lastOp(h, "outdated").Version = 6 }},
	{"an update is not merged", "I1", func(h *history.History) {
		merge := delivery(h, "appended", 1)
		merge.Merged = slices.Delete(merge.Merged, 1, 2)
	}},
	{"the first update is not merged", "I1", func(h *history.History) { delivery(h, "summed", 1).Merged = delivery(h, "summed", 1).Merged[1:] }},
	{"updates are not delivered", "I1", func(h *history.History) { unpublish(h, "appended", 1) }},
	{"an update is added twice", "I4", func(h *history.History) {
		merge := delivery(h, "summed", 1)
		merge.Merged = slices.Insert(merge.Merged, 1, merge.Merged[0])
	}},
	{"an update is in two deliveries", "I4", func(h *history.History) {
		copied(h, "appended").Merged = append(slices.Clone(delivery(h, "appended", 1).Merged), lastOp(h, "appended").N)
	}},
	{"updates change places", "I4", func(h *history.History) {
		merge := delivery(h, "appended", 1).Merged
		merge[0], merge[1] = merge[1], merge[0]
	}},
	{"another task's update is merged", "I3", func(h *history.History) { delivery(h, "appended", 1).Merged[0] = op(h, "summed").N }},
	{"a copy holds one update more", "I4", func(h *history.History) {
		more := *delivery(h, "appended", 1)
		more.Merged, more.Offset = append(slices.Clone(more.Merged), lastOp(h, "appended").N), 1000
		h.Deliveries = append(h.Deliveries, more)
	}},
	{"a merge waits beyond its bound", "I3", func(h *history.History) { late := lastOp(h, "appended"); late.MaxWait = 300 }},
	{"a merge does not put off", "I3", func(h *history.History) { delivery(h, "newest", 1).Due -= 100 }},
	{"the newest of merged requests is dropped", "I1", func(h *history.History) { *copied(h, "newest") = *delivery(h, "first", 1) }},
	{"a merge goes unanswered", "I1", func(h *history.History) { untell(h, "newest", "merged") }},
	{"cancelled is answered, and all updates were delivered", "I5", func(h *history.History) { publishMerged(h, "forgone") }},
	{"too_late is answered, and updates are not delivered", "I1", func(h *history.History) { eventOf(h, "forgone", "cancelled", 1).State = "too_late" }},
}

// nthOp returns the n-th request of an id, from 1.
func nthOp(h *history.History, id string, n int) *history.Op {
	for i := range h.Ops {
		if h.Ops[i].ID == id {
			if n--; n == 0 {
				return &h.Ops[i]
			}
		}
	}
	panic("the sample has no such request")
}

// eventOf returns the n-th event of an id and state, from 1.
func eventOf(h *history.History, id, state string, n int) *history.Event {
	for i := range h.Events {
		if e := &h.Events[i]; e.ID == id && e.State == state {
			if n--; n == 0 {
				return e
			}
		}
	}
	panic("the sample has no such event")
}

// unfired is the delivery of what was fired, as if it had not been.
func unfired(h *history.History) history.Delivery {
	d := *delivery(h, "fired", 1)
	d.Due = op(h, "fired").Due
	d.At = d.Due + 2
	return d
}

// publishMerged publishes all requests of an id in one delivery.
func publishMerged(h *history.History, id string) {
	var all []history.Op
	for _, o := range h.Ops {
		if o.ID == id && o.Kind == history.Schedule {
			all = append(all, o)
		}
	}
	(&sample{h}).together(all, all[len(all)-1].DueAt())
}
