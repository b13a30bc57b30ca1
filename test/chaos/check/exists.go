package check

import (
	"slices"

	"github.com/notyet/notyet/test/chaos/history"
)

// keeps checks a request that changes nothing if there is a task of its identity. keep asks for a pending one, once for any
// that is remembered. It reports whether there was one.
func (w *walk) keeps(o *history.Op) bool {
	answer := w.scheduled(o)
	if answer == nil {
		w.changedNothing(o)
		return true
	}
	if o.IfExists == history.Once && len(w.dues) > 0 {
		w.about(w.life, "I4", "request %d was scheduled once, though its id was known", o.N)
	}
	if w.last == nil {
		return false
	}
	switch first := w.first(w.last); {
	case first != nil && first.At > answer.At:
		w.about(w.life, "I6", "request %d was published at %d, after request %d, which keeps what is pending, was acknowledged at %d", w.last.N, first.At, o.N, answer.At)
	case first == nil && !w.ended(w.last):
		w.Figures.Lost++
		w.about(w.life, "I1", "request %d, due at %d, was lost to request %d, which keeps what is pending", w.last.N, w.last.DueAt(), o.N)
	}
	for _, d := range w.deliveries {
		if d.Op == w.last.N && d.At > answer.At && w.cause(answer.At, d.At) == nil {
			w.about(w.life, "I6", "attempt %d of request %d was published at %d, after request %d, which keeps what is there, began at %d", d.Attempt, d.Op, d.At, o.N, answer.At)
		}
	}
	w.Figures.Fates["delivered"]++
	return false
}

// scheduled returns the answer that the request made a task. It is known by its due time, which no earlier task has.
func (w *walk) scheduled(o *history.Op) *history.Event {
	if slices.Contains(w.dues, o.DueAt()) {
		return nil
	}
	return w.eventAt("scheduled", o.DueAt())
}

// changedNothing checks a request that made no task: there was one, which had not ended, or the request says once.
func (w *walk) changedNothing(o *history.Op) {
	w.Figures.Fates["kept"]++
	w.kept++
	if w.delivered(o) {
		w.about(w.life, "I3", "request %d was not to change anything, and was delivered", o.N)
	}
	if len(w.dues) == 0 {
		w.about(w.life, "I1", "request %d was not scheduled, and there was no other", o.N)
		return
	}
	if !slices.ContainsFunc(w.events, func(e *history.Event) bool { return e.State == "kept" && w.dueOnce(e.Due) }) {
		w.about(w.life, "I1", "request %d was neither scheduled nor kept", o.N)
	}
	if o.IfExists != history.Keep {
		return
	}
	if w.last == nil {
		w.about(w.life, "I1", "request %d was not scheduled, and nothing was pending", o.N)
		return
	}
	copies := slices.DeleteFunc(slices.Clone(w.deliveries), func(d *history.Delivery) bool { return d.Op != w.last.N })
	if len(copies) > 0 && copies[len(copies)-1].At < o.Accepted {
		w.about(w.life, "I1", "request %d was kept at %d, though request %d had been delivered at %d", o.N, o.Accepted, w.last.N, copies[len(copies)-1].At)
	}
}

// dueOnce reports whether a task of the life was due then.
func (w *walk) dueOnce(due int64) bool {
	fired := w.event("fired")
	return slices.Contains(w.dues, due) || fired != nil && fired.Due == due
}

// keptInAll checks that each request that changed nothing was told so.
func (w *walk) keptInAll() {
	told := 0
	for _, e := range w.events {
		if e.State == "kept" {
			told++
		}
	}
	if told < w.kept {
		w.about(w.life, "I1", "%d requests changed nothing, and kept was answered %d times", w.kept, told)
	}
}
