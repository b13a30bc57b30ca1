package sim

import (
	"slices"

	"github.com/notyet/notyet/task"
	"github.com/notyet/notyet/test/chaos/history"
)

// judgeTold holds what callers were told against what was delivered, in seeds from aimedSeeds on: the last event of each delivery that
// asks for it, and whether it was too late where that was said. A database that was set back may forget a delivery, or that a producer has
// the record, which a silent partition may keep there for long: the task is decided again.
func (w *world) judgeTold(h *history.History) {
	if w.truth == nil {
		return
	}
	type deliveredAs struct {
		name
		due int64
	}
	ops, told, first := map[int64]*history.Op{}, map[deliveredAs]bool{}, map[name]int64{}
	for i := range h.Ops {
		ops[h.Ops[i].N] = &h.Ops[i]
	}
	for _, e := range h.Events {
		if e.State == "succeeded" {
			told[deliveredAs{name{e.Topic, e.ID}, e.Due}] = true
		}
	}
	forgotten := func(d history.Delivery, o *history.Op) bool {
		return slices.ContainsFunc(h.Faults, func(f history.Fault) bool {
			return f.Rewinds && (f.Start <= d.At && d.At <= f.End+2000 || slices.ContainsFunc(h.Sent, func(s history.Sent) bool {
				_, offset := task.SplitSeq(s.Seq)
				return s.Topic == d.Topic && s.ID == d.ID && offset == o.Offset && f.Start <= s.At && s.At <= f.End
			}))
		})
	}
	for _, d := range h.Deliveries {
		of := name{d.Topic, d.ID}
		if at, ok := first[of]; !ok || d.At < at {
			first[of] = d.At
		}
		if o := ops[d.Op]; o != nil && o.AllEvents && o.AckTimeout == 0 && !told[deliveredAs{of, d.Due}] && !forgotten(d, o) {
			w.find("events", "%s/%s, due at %d, was delivered at %d, and its last event was never told", d.Topic, d.ID, d.Due, d.At)
			told[deliveredAs{of, d.Due}] = true
		}
	}
	w.judgeTooLate(h, ops, first)
}

// judgeTooLate: it is too late only for what is claimed. So what was delivered after that answer had been due no later than a look-ahead
// after it, and nothing that was too late is cancelled later, unless the database has forgotten that answer.
func (w *world) judgeTooLate(h *history.History, ops map[int64]*history.Op, first map[name]int64) {
	ahead := max(w.dispatcher.LookAhead, w.dispatcher.BurstLookAhead).Milliseconds() + 1000 + 2*w.stepsBack.Milliseconds()
	lastOp := map[name]int64{}   // when the last schedule of an identity was accepted
	question := map[name]int64{} // where in the intake the first cancel or fire of an identity stands; all of one identity are in one partition
	for i := range h.Ops {
		switch o := &h.Ops[i]; {
		case o.ID == "":
		case o.Kind == history.Schedule:
			lastOp[name{o.Topic, o.ID}] = max(lastOp[name{o.Topic, o.ID}], o.Accepted)
		default:
			if at, ok := question[name{o.Topic, o.ID}]; !ok || o.Offset < at {
				question[name{o.Topic, o.ID}] = o.Offset
			}
		}
	}
	for _, e := range h.Events {
		of := name{e.Topic, e.ID}
		if e.State != "too_late" || first[of] < e.At && first[of] > 0 || slices.ContainsFunc(h.Faults, func(f history.Fault) bool { return f.Rewinds && f.Start <= e.At && e.Since() <= f.End }) {
			continue
		}
		if slices.ContainsFunc(h.Sent, func(s history.Sent) bool { return name{s.Topic, s.ID} == of && s.At <= e.At }) {
			continue // a producer had it, perhaps fired, and the database forgot the fire
		}
		for _, d := range h.Deliveries {
			if (name{d.Topic, d.ID}) == of && d.Due > e.At+ahead && ops[d.Op] != nil && ops[d.Op].Offset < question[of] {
				w.find("I5", "%s/%s: too_late was told at %d, and what was delivered at %d had been due at %d: nobody had claimed it", d.Topic, d.ID, e.At, d.At, d.Due)
				break
			}
		}
		if lastOp[of] < e.At && slices.ContainsFunc(h.Events, func(c history.Event) bool {
			return c.Topic == e.Topic && c.ID == e.ID && c.State == "cancelled" && c.Due == e.Due && c.At > e.At
		}) {
			w.find("I5", "%s/%s: too_late was told at %d, and cancelled later", e.Topic, e.ID, e.At)
		}
	}
}
