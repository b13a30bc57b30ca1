package check

import (
	"slices"
	"strings"

	"github.com/notyet/notyet/test/chaos/history"
)

// judgeLife follows the requests about one identity in the order of the intake, in which they take
// effect. It compares each with what was published and answered. A delivery and a request that race
// may end either way, but only one of them wins, and the answer says which.
//
// A database that was set back decides again, and may decide in another way. Then the life must be right as a whole, or without the answers
// that the database has forgotten, or without those answers and the deliveries of that time.
func (c *checker) judgeLife(l *life) {
	found, figures := len(c.Findings), c.Figures
	c.walk(l)
	if len(c.Findings) == found || !c.decidedTwice(l) {
		return
	}
	answers, all := c.remembered(l)
	for _, l := range []*life{answers, all} {
		again := *c
		again.Result = Result{Figures: newFigures()}
		if again.walk(l); len(again.Findings) == 0 {
			c.Findings, c.Figures = c.Findings[:found], figures
			c.Figures.Reversed++
			return
		}
	}
}

// remembered is a life without the answers of commits that the database forgot; all is also without what was delivered meanwhile, and from
// memory in a moment after that, before anything was decided again.
func (c *checker) remembered(l *life) (answers, all *life) {
	a := *l
	deliveries := slices.Clone(l.deliveries)
	for _, f := range c.faults {
		if !f.Rewinds {
			continue
		}
		until := f.End + fromMemory
		for _, e := range l.events {
			if e.Since() > f.End && e.State != "dispatched" && e.State != "succeeded" {
				until = min(until, e.At-1)
			}
		}
		deliveries = slices.DeleteFunc(deliveries, func(d *history.Delivery) bool { return f.Start <= d.At && d.At <= max(f.End, until) })
	}
	a.events = slices.DeleteFunc(slices.Clone(l.events), c.forgot)
	b := a
	b.deliveries = deliveries
	return &a, &b
}

// walk follows one life.
func (c *checker) walk(l *life) {
	w := walk{checker: c, life: l, version: -1}
	w.answerInOneWay()
	if l.merges() {
		c.judgeMerges(l)
		return
	}
	for _, o := range l.ops {
		switch {
		case o.Invalid:
			w.invalid(o)
		case o.Kind == history.Fire:
			w.fire(o)
		case o.Kind == history.Cancel:
			w.cancel(o)
		default:
			w.schedule(o)
		}
	}
	w.end()
}

// walk is the state of judgeLife.
type walk struct {
	*checker
	*life
	version int64 // of the identity; -1: none
	tomb    bool  // a cancel with that version is in force
	known   bool  // something was applied before
	last    *history.Op
	dues    []int64 // of all tasks that there were
	kept    int     // requests that changed nothing, because there was one
}

func (w *walk) invalid(o *history.Op) {
	w.Figures.Fates["rejected"]++
	if !w.hasEvent("rejected") && o.Outcome == history.OK {
		w.about(w.life, "I1", "request %d is invalid and was not rejected", o.N)
	}
	if w.delivered(o) {
		w.about(w.life, "I3", "request %d is invalid and was delivered", o.N)
	}
}

func (w *walk) schedule(o *history.Op) {
	if w.outdated(o) || w.tomb && o.Version >= 0 && o.Version == w.version {
		w.stale(o)
		return
	}
	switch {
	case o.IfExists == "":
		if w.last != nil {
			w.replaced(w.last, o)
		}
	case w.keeps(o):
		return
	}
	w.last, w.known, w.tomb, w.dues = o, true, false, append(w.dues, o.DueAt())
	if o.Version >= 0 {
		w.version = o.Version
	}
}

func (w *walk) stale(o *history.Op) {
	w.Figures.Fates["stale"]++
	if w.delivered(o) {
		w.about(w.life, "I6", "request %d of version %d was delivered, though %d was known", o.N, o.Version, w.version)
	}
	if !w.hasEvent("stale") && o.Outcome == history.OK {
		w.about(w.life, "I1", "request %d of version %d was not answered stale (%d was known)", o.N, o.Version, w.version)
	}
}

// replaced checks a task that a newer request replaces: either it was delivered before that took
// effect, or it never is. A database that was set back between the answer and the delivery has forgotten
// the answer. One that was set back before the answer may have forgotten that the older task was sent, while a
// broker in trouble had not taken the record yet.
func (w *walk) replaced(old, newer *history.Op) {
	first := w.first(old)
	if first == nil {
		w.Figures.Fates["replaced"]++
		return
	}
	w.Figures.Fates["delivered"]++
	for _, e := range w.events {
		held := w.rewound(e.At-fromMemory, e.At) && w.calmTime(nil, e.At, first.At) <= fromMemory
		if e.State == "scheduled" && e.Due == newer.Due && first.At > e.At && !w.rewound(e.Since(), first.At) && !held {
			w.about(w.life, "I6", "request %d was published at %d, after the newer request %d was acknowledged at %d", old.N, first.At, newer.N, e.At)
		}
	}
}

func (w *walk) cancel(o *history.Op) {
	answer := w.answerTo()
	w.Figures.Cancels[answer]++
	w.answered(o, answer)
	switch answer {
	case "cancelled":
		switch {
		case w.last == nil || !w.delivered(w.last):
		case w.forgotten(w.last):
			w.Figures.Reversed++
		default:
			w.about(w.life, "I5", "cancelled was answered, and request %d was published", w.last.N)
		}
		if w.last != nil {
			w.Figures.Fates["cancelled"]++
		}
		w.last, w.known, w.tomb = nil, true, o.Version >= 0
		if o.Version >= 0 {
			w.version = o.Version
		}
	case "nothing":
		if o.Outcome == history.OK {
			w.about(w.life, "I1", "cancel %d was not answered", o.N)
		}
	}
}

// forgotten reports whether the database forgot the delivery of a request before the cancel was answered: all copies came
// before the answer, and the database was set back between the first copy and the answer, or a moment before: a dispatcher goes on
// with the tasks that it has in memory until it has looked at its slots.
func (w *walk) forgotten(o *history.Op) bool {
	answered := w.event("cancelled")
	for _, d := range w.deliveries {
		if d.Op == o.N && d.At > answered.At {
			return false
		}
	}
	return w.rewound(w.first(o).At-fromMemory, answered.At)
}

// onWaking reports whether all copies of a task that ended at an instant came from dispatchers that were paused while the database
// forgot that they had claimed it: when such a one wakes, it goes on with what it has in memory until it has looked at its slots.
func (w *walk) onWaking(ended int64) bool {
	return !slices.ContainsFunc(w.deliveries, func(d *history.Delivery) bool {
		return !slices.ContainsFunc(w.faults, func(p *history.Fault) bool {
			return strings.HasPrefix(p.Kind, "pause") && strings.Contains(p.Kind+p.Target, "dispatcher") && p.End <= d.At && d.At <= p.End+fromMemory &&
				slices.ContainsFunc(w.faults, func(f *history.Fault) bool {
					return f.Rewinds && p.Start <= f.End && f.End <= ended && ended <= p.End
				})
		})
	})
}

// fromMemory is how long, in ms, a dispatcher may deliver tasks that the database has forgotten.
const fromMemory = 2000

// end checks the last task: if nothing replaced or cancelled it, it was delivered, is dead, or is
// not due yet.
func (w *walk) end() {
	o := w.last
	w.keptInAll()
	if len(w.life.ops) == 1 && w.delivered(w.life.ops[0]) && slices.ContainsFunc(w.letters, func(d *history.Letter) bool { return d.Kind == "expired" && !w.onWaking(d.DiedAt) }) {
		w.about(w.life, "I1", "request %d was delivered, and also told to have expired", w.life.ops[0].N)
	}
	switch {
	case o == nil:
	case w.delivered(o):
		w.Figures.Fates["delivered"]++
	case o.MayDie && w.hasEvent("succeeded"): // its topic was deleted with the record
		w.Figures.Fates["delivered"]++
	case o.MayDie && w.refused(o): // beyond a quota, where not each rejection has a dead letter
		w.Figures.Fates["rejected"]++
	case len(w.letters) > 0:
		w.Figures.Fates["dead"]++
		if !o.MayDie {
			w.about(w.life, "I1", "request %d died, and its target was well: %s", o.N, w.letters[0].Reason)
		}
	case w.dueOf(o) > w.h.Run.End:
		w.Figures.Fates["pending"]++
		if !w.waits() {
			w.about(w.life, "I1", "request %d is due at %d, and does not wait", o.N, w.dueOf(o))
		}
	case o.Outcome != history.OK:
		w.Figures.Fates[o.Outcome]++
	default:
		w.Figures.Lost++
		w.about(w.life, "I1", "request %d, due at %d, was lost", o.N, w.dueOf(o))
	}
}

// refused reports whether a request was told that it is rejected.
func (w *walk) refused(o *history.Op) bool {
	return slices.ContainsFunc(w.events, func(e *history.Event) bool { return e.State == "rejected" && e.Request == w.place(o) })
}

// deaths returns the dead letters, except one for each request that was rejected.
func (l *life) deaths() []*history.Letter {
	rejected := len(slices.DeleteFunc(slices.Clone(l.ops), func(o *history.Op) bool { return !o.Invalid }))
	return slices.DeleteFunc(l.letters, func(d *history.Letter) bool {
		if d.Kind != "rejected" {
			return false
		}
		rejected--
		return rejected >= 0
	})
}

// outdated reports whether a newer version than the request's is known.
func (w *walk) outdated(o *history.Op) bool {
	return w.known && o.Version >= 0 && o.Version < w.version
}

// waits reports whether the database has the task as pending.
func (w *walk) waits() bool {
	_, ok := w.waiting()[w.ident]
	return ok
}

// waiting returns the identities that are pending in the database.
func (c *checker) waiting() map[ident]bool {
	if c.pending == nil {
		c.pending = make(map[ident]bool, len(c.h.Rest.Pending))
		for _, p := range c.h.Rest.Pending {
			c.pending[ident{p.Topic, p.ID}] = true
		}
	}
	return c.pending
}

// answerTo returns the valid answer: the last one, if the database was restored between two.
func (w *walk) answerTo() string {
	var before *history.Event
	answer := w.answer()
	for _, e := range w.events {
		if e.State != "cancelled" && e.State != "too_late" && e.State != "not_found" {
			continue
		}
		if e.State == "not_found" && answer == "cancelled" && w.only(history.Fire) != nil { // the answer to the fire
			continue
		}
		if before != nil && e.State != before.State && w.rewound(before.Since(), e.At) {
			w.Figures.Reversed++
			answer = e.State
		}
		before = e
	}
	return answer
}

// answer returns the answer to the only cancel of a life. too_late and not_found may be the answer to its fire instead.
func (l *life) answer() string {
	if l.only(history.Fire) != nil && l.hasEvent("cancelled") {
		return "cancelled"
	}
	for _, e := range l.events {
		switch e.State {
		case "cancelled", "too_late", "not_found":
			return e.State
		}
	}
	for _, e := range l.events {
		if e.State == "stale" {
			return e.State
		}
	}
	return "nothing"
}

func (l *life) hasEvent(state string) bool { return l.event(state) != nil }

// event returns the first event with this state.
func (l *life) event(state string) *history.Event {
	i := slices.IndexFunc(l.events, func(e *history.Event) bool { return e.State == state })
	if i < 0 {
		return nil
	}
	return l.events[i]
}

// eventAt returns the first event with this state and due time.
func (l *life) eventAt(state string, due int64) *history.Event {
	i := slices.IndexFunc(l.events, func(e *history.Event) bool { return e.State == state && e.Due == due })
	if i < 0 {
		return nil
	}
	return l.events[i]
}

// ended reports whether the request was delivered or is dead.
func (l *life) ended(o *history.Op) bool {
	return l.delivered(o) || len(l.letters) > 0 || o.MayDie && l.hasEvent("succeeded")
}

func (l *life) delivered(o *history.Op) bool { return l.first(o) != nil }

// first returns the first copy of the request's first attempt.
func (l *life) first(o *history.Op) *history.Delivery {
	for _, d := range l.deliveries {
		if d.Op == o.N {
			return d
		}
	}
	return nil
}
