package check

import (
	"slices"

	"github.com/notyet/notyet/test/chaos/history"
)

// merges reports whether the requests of the life are merges. One of another kind may follow them: a cancel.
func (l *life) merges() bool { return l.ops[0].IfExists == history.Merge }

// judgeMerges checks a life of merges. Each request is in exactly one delivery, once. A delivery holds requests that follow one
// another in the intake, in that order, and is due as its last one wants, but not after the first one's bound. Where the database
// was set back, requests of a delivery that it has forgotten are merged again, with later ones.
func (c *checker) judgeMerges(l *life) {
	if c.decidedTwice(l) {
		return
	}
	var all []*history.Op // the merges, in the order of the intake
	for _, o := range l.ops {
		if o.IfExists == history.Merge && !o.Invalid {
			all = append(all, o)
		}
	}
	m := merges{checker: c, life: l, all: all}
	if len(all) == 0 { // all were rejected
		if len(l.deliveries) > 0 {
			c.about(l, "I3", "its requests are invalid, and it was delivered")
		}
		return
	}
	for _, d := range m.groups() {
		m.delivery(d)
	}
	m.rest()
}

// merges is the state of judgeMerges.
type merges struct {
	*checker
	*life
	all  []*history.Op
	next int // the first one that was in no delivery so far
}

// groups returns the first copy of each delivery, in the order of their requests.
func (m *merges) groups() []*history.Delivery {
	var out []*history.Delivery
	for _, d := range m.deliveries {
		i := slices.IndexFunc(out, func(b *history.Delivery) bool { return b.Key == d.Key })
		switch {
		case i < 0:
			out = append(out, d)
		case d.Op != out[i].Op || d.Due != out[i].Due || !slices.Equal(d.Merged, out[i].Merged):
			m.about(m.life, "I4", "two copies of one delivery hold requests %v and %v, due at %d and %d", out[i].Merged, d.Merged, out[i].Due, d.Due)
		}
	}
	slices.SortStableFunc(out, func(a, b *history.Delivery) int { return m.at(a.Op) - m.at(b.Op) })
	return out
}

// at returns the position of a request among the merges, -1 if it is none of them.
func (m *merges) at(n int64) int {
	return slices.IndexFunc(m.all, func(o *history.Op) bool { return o.N == n })
}

func (m *merges) delivery(d *history.Delivery) {
	last := m.at(d.Op)
	if last < 0 {
		return // judgeCopies reports it
	}
	if m.all[last].Merge == "" { // only the last one shows
		if last < m.next {
			m.about(m.life, "I4", "request %d is in two deliveries", d.Op)
			return
		}
		m.group(m.all[m.next:last+1], d)
		m.next = last + 1
		return
	}
	if len(d.Merged) == 0 {
		m.about(m.life, "I3", "the delivery at %s/%d/%d holds no request", d.Topic, d.Partition, d.Offset)
		return
	}
	for _, n := range d.Merged {
		switch at := m.at(n); {
		case at < 0:
			m.about(m.life, "I3", "request %d is in a delivery, and is of another task or of nobody", n)
			return
		case at < m.next:
			m.about(m.life, "I4", "request %d is in a delivery twice, or in two, or out of order: %v", n, d.Merged)
			return
		default:
			m.lost(m.all[m.next:at])
			m.next = at + 1
		}
	}
	first := m.at(d.Merged[0])
	m.group(m.all[first:last+1], d)
}

// group checks the due time of a delivery of these requests, and their answers.
func (m *merges) group(of []*history.Op, d *history.Delivery) {
	state, due := "scheduled", int64(0)
	for _, o := range of {
		due = o.DueAt()
		if o.MaxWait > 0 {
			due = min(due, of[0].Accepted+o.MaxWait)
		}
		if m.eventAt(state, due) == nil {
			m.about(m.life, "I1", "request %d was not answered %s, due at %d", o.N, state, due)
		}
		m.Figures.Fates[map[string]string{"scheduled": "delivered", "merged": "merged"}[state]]++
		state = "merged"
	}
	if d.Due != due {
		m.about(m.life, "I3", "the delivery of requests %d to %d is due at %d, and they say %d", of[0].N, of[len(of)-1].N, d.Due, due)
	}
}

func (m *merges) lost(of []*history.Op) {
	for _, o := range of {
		m.Figures.Lost++
		m.about(m.life, "I1", "request %d, which was to be merged, is in no delivery", o.N)
	}
}

// rest checks the requests behind the last delivery: they are lost, unless they were cancelled.
func (m *merges) rest() {
	left, cancel := m.all[m.next:], m.only(history.Cancel)
	if cancel == nil {
		m.lost(left)
		return
	}
	answer := m.life.answer()
	m.Figures.Cancels[answer]++
	switch {
	case answer == "cancelled" && len(left) == 0:
		m.about(m.life, "I5", "cancelled was answered, and all requests were published")
	case answer == "cancelled":
		m.Figures.Fates["cancelled"] += len(left)
	case answer == "too_late":
		m.lost(left)
	default:
		m.about(m.life, "I5", "cancel %d was answered %s, and request %d came before", cancel.N, answer, m.all[0].N)
	}
}
