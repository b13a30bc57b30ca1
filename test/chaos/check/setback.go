package check

import (
	"cmp"
	"slices"

	"github.com/notyet/notyet/test/chaos/history"
)

// A database that is set back goes on from an earlier state. It reads the requests and reports since then again, and decides about them
// anew. All that was told and published in between stays. So an identity has two operations for each set-back: one at which the state is
// saved, and one at which it comes back. What the database does between the two is forgotten, and need not be told.
type (
	kept struct {
		n int
		history.Setback
	}
	gone struct {
		n int
		history.Setback
	}
	// again is what may come to pass a second time after a set-back: a request or a report that is read again; a death; or a delivery that is
	// known to have been made, from a send log or a topic, and is not made again.
	again struct {
		setback int
		input   any
	}
)

// setbacksOf returns the set-backs in which something of a life may have been forgotten.
func (c *checker) setbacksOf(l *life) (out []history.Setback) {
	last := l.lastSeen()
	for _, f := range c.faults {
		for _, b := range f.SetBack() {
			if b.From <= last && b.Back >= l.ops[0].Accepted {
				out = append(out, b)
			}
		}
	}
	slices.SortFunc(out, func(a, b history.Setback) int { return cmp.Compare(a.Gone, b.Gone) })
	return out
}

// lastSeen returns when something of a life was seen last.
func (l *life) lastSeen() int64 {
	last := l.ops[len(l.ops)-1].Accepted
	for _, d := range l.deliveries {
		last = max(last, d.At)
	}
	for _, e := range l.events {
		last = max(last, e.At)
	}
	for _, g := range l.looks {
		last = max(last, g.Return)
	}
	return last
}

// decidedTwice reports whether the database was set back in a life, or about then.
func (c *checker) decidedTwice(l *life) bool {
	last := l.lastSeen()
	return slices.ContainsFunc(c.faults, func(f *history.Fault) bool {
		return f.Rewinds && f.Start <= last+c.bounds.Recovery && f.End+c.bounds.Recovery >= l.ops[0].Accepted
	})
}

// readAgain adds the set-backs, and what may come to pass again after each.
func (h *identity) readAgain() {
	for i, b := range h.setbacks {
		h.add(kept{i, b}, b.From, b.Kept)
		h.add(gone{i, b}, b.Gone, b.Back)
		for _, r := range h.requests {
			if r.Accepted <= b.Back {
				h.add(again{i, r}, b.Gone, forever)
			}
		}
		for at, r := range h.reports {
			if r.At <= b.Back {
				h.add(again{i, heard{at, r}}, b.Gone, forever)
			}
		}
		for _, d := range h.sent {
			if !d.copy {
				h.add(again{i, d}, max(b.Gone, d.At), forever)
			}
		}
	}
}

// mayCopy reports whether a record needs no claim of its own: the database knows the claim of an earlier copy, or it has just forgotten it, and
// a dispatcher has it in memory.
func (h *identity) mayCopy(s state, d publication) bool {
	return d.copy && (s.sent&(1<<d.key) != 0 || slices.ContainsFunc(h.setbacks, func(b history.Setback) bool {
		return b.From <= d.At && h.calmTime(nil, b.Back, d.At) <= fromMemory
	}))
}

// save is the last instant that a set-back leaves. A delivery before it may not be settled there: the task counts as claimed, and its next
// owner gives it back where a cancel is read again, which then takes effect.
func (h *identity) save(s state, k kept) []state {
	if s.backs != 2*k.n {
		return nil
	}
	s.backs++
	s.saved = s.row
	out := []state{s}
	sent := s.phase == waiting || s.phase == ended && s.end == delivered
	if sent && s.attempt > 0 && s.sentAt <= k.Kept && k.Kept-s.sentAt <= h.bounds.Recovery {
		if s.saved.attempt, s.saved.phase = s.attempt-1, pending; s.saved.attempt > 0 {
			s.saved.phase = waiting
		}
		out = append(out, s)
	}
	return out
}

func (h *identity) setBack(s state, g gone) []state {
	if s.backs != 2*g.n+1 {
		return nil
	}
	s.backs++
	s.row, s.saved, s.redo = s.saved, row{}, 0
	return []state{s}
}

// again is about what a set-back may have undone.
func (h *identity) again(s state, a again) []state {
	switch {
	case s.backs < 2*(a.setback+1):
		return nil
	case s.backs > 2*(a.setback+1)+1: // another set-back came first
		return []state{s}
	}
	switch o := a.input.(type) {
	case request:
		if o.at != s.redo {
			return nil
		}
		s.redo++
		if o.at < s.next {
			return []state{s}
		}
		return h.decide(s, o)
	case heard:
		return h.hear(s, o)
	case publication:
		known := *o.Delivery
		if known.Op == s.op {
			known.Due = s.due // a fire is forgotten, and what it delivered is known
		}
		o.Delivery = &known
		return append(h.deliver(s, o), s)
	}
	return append(h.die(s), s)
}

// untold is the state of a request without its answer: a database that forgets the decision may forget to tell it.
func (h *identity) untold(s state) []state {
	if s.backs%2 == 0 {
		return nil
	}
	return []state{s}
}
