// Package check judges the history of a fault run: what must always hold, held or not, and for
// every single task.
//
//	I1, I5, I6    life.go       what became of each request
//	              exists.go     keep and once
//	              fire.go       fire, and that a cancel or fire is answered in one way
//	              merge.go      merges
//	linear        identity.go   one order that explains all of an identity, by the rules of spec.go
//	I2, I3, I4    copies.go     every record on a target topic, alone and beside its copies
//	I7            order.go      first attempts of a key
//	I5, I8        attempts.go   reports, redeliveries, stops
//	I9, I10, I11  stores.go     slots, offsets and the index as they were seen
//	I12, I13      lateness.go   how late, and how soon it is over
//	I13           attacks.go    what others have beside a tenant that attacks
//	I14           sent.go       send logs beside the topics
//
// A request whose outcome its client does not know may have had its effect or not; it is never
// counted as lost.
package check

import (
	"cmp"
	"fmt"
	"slices"

	"github.com/notyet/notyet/test/chaos/history"
)

// Bounds are tolerances in ms. The zero value takes the defaults.
type Bounds struct {
	Late     int64 // a task that is later than this counts as late. Default 1000
	Recovery int64 // from a fault's end until no task is late, and the longest delay of a task outside faults. Default 60000
	Copies   int64 // from a fault's end until the last copy that it explains. Default 45000
	Settled  int64 // outside faults, how long a delivery may be published and not settled. Default 10000
	Window   int64 // outside faults, how much later than the earliest instant a redelivery may be. Default 3000
	Flood    int64 // how much later than usual, at p99, tasks during a burst of others, or beside a tenant that attacks, may be. Default 5000
	Ahead    int64 // how long before its due time a task has to be stored for a certain position in the order: the longest look-ahead, before a burst, and a second. Default 4000
	Clock    int64 // how far the database's clock may be behind the broker's. Default 0
}

func (b Bounds) withDefaults() Bounds {
	return Bounds{
		Late: cmp.Or(b.Late, 1000), Recovery: cmp.Or(b.Recovery, 60_000), Copies: cmp.Or(b.Copies, 45_000),
		Settled: cmp.Or(b.Settled, 10_000), Window: cmp.Or(b.Window, 3000), Flood: cmp.Or(b.Flood, 5000), Ahead: cmp.Or(b.Ahead, 4000), Clock: b.Clock,
	}
}

// Finding is one violation.
type Finding struct {
	Invariant string // I1 to I14, or "fault" for a fault without effect
	Topic, ID string // the task, if it is about one
	What      string
}

func (f Finding) String() string {
	if f.ID == "" {
		return f.Invariant + ": " + f.What
	}
	return fmt.Sprintf("%s: %s/%s: %s", f.Invariant, f.Topic, f.ID, f.What)
}

// Result is the verdict and the figures.
type Result struct {
	Findings []Finding
	Figures  Figures
}

// ident identifies a task by topic and id.
type ident struct{ topic, id string }

// life is everything about one identity.
type life struct {
	ident
	ops        []*history.Op // in the order of the intake
	deliveries []*history.Delivery
	events     []*history.Event
	reports    []*history.Report
	letters    []*history.Letter
	looks      []*history.Look
}

// checker is one check in progress.
type checker struct {
	Result
	bounds Bounds
	h      *history.History
	ops    map[int64]*history.Op
	lives  map[ident]*life
	faults []*history.Fault         // by start
	fired  map[int64]*history.Event // the answer to a fire, by the request whose task it fired

	// Built on first use.
	pending map[ident]bool
	firsts  []*history.Delivery
}

// Run checks a history.
func Run(h *history.History, bounds Bounds) Result {
	c := newChecker(h, bounds)
	c.judgeLateness() // first: it determines how long each fault lasted
	for _, l := range c.sorted() {
		storm := l.ops[0].Storm
		if !storm {
			c.judgeLife(l)
		}
		c.judgeCopies(l)
		if !storm {
			c.judgeAttempts(l)
			c.judgeReports(l)
		}
		c.judgeStops(l)
		c.judgeIdentity(l)
	}
	c.judgeStrangers()
	c.judgeOrder()
	c.judgeSlots()
	c.judgeOffsets()
	c.judgeIndex()
	c.judgeSent()
	c.judgeFaults()
	return c.Result
}

// newChecker collects what belongs to each identity.
func newChecker(h *history.History, bounds Bounds) *checker {
	c := &checker{bounds: bounds.withDefaults(), h: h, ops: make(map[int64]*history.Op, len(h.Ops)), lives: make(map[ident]*life, len(h.Ops)), fired: map[int64]*history.Event{}}
	c.Figures = newFigures()
	for i := range h.Ops {
		o := &h.Ops[i]
		c.ops[o.N] = o
		if o.Accepted == 0 {
			c.notAccepted(o)
			continue
		}
		l := c.life(o.Topic, c.identity(o))
		l.ops = append(l.ops, o)
	}
	for i := range h.Deliveries {
		d := &h.Deliveries[i]
		if l := c.lives[ident{d.Topic, d.ID}]; l != nil {
			l.deliveries = append(l.deliveries, d)
		}
	}
	each(h.Events, func(e *history.Event) *life { return c.lives[ident{e.Topic, e.ID}] }, func(l *life, e *history.Event) { l.events = append(l.events, e) })
	each(h.Reports, func(r *history.Report) *life { return c.lives[ident{r.Topic, r.ID}] }, func(l *life, r *history.Report) { l.reports = append(l.reports, r) })
	each(h.Letters, func(d *history.Letter) *life { return c.lives[ident{d.Topic, d.ID}] }, func(l *life, d *history.Letter) { l.letters = append(l.letters, d) })
	for _, l := range c.lives {
		l.letters = l.deaths()
	}
	each(h.Looks, func(k *history.Look) *life { return c.lives[ident{k.Topic, k.ID}] }, func(l *life, k *history.Look) { l.looks = append(l.looks, k) })
	for _, l := range c.lives {
		slices.SortFunc(l.ops, func(a, b *history.Op) int {
			return cmp.Or(cmp.Compare(a.Partition, b.Partition), cmp.Compare(a.Offset, b.Offset))
		})
		slices.SortFunc(l.deliveries, func(a, b *history.Delivery) int {
			return cmp.Or(cmp.Compare(a.At, b.At), cmp.Compare(a.Offset, b.Offset))
		})
		slices.SortStableFunc(l.reports, func(a, b *history.Report) int { return cmp.Compare(a.At, b.At) })
	}
	slices.SortStableFunc(h.Sent, func(a, b history.Sent) int { return cmp.Compare(a.At, b.At) })
	for i := range h.Faults {
		c.faults = append(c.faults, &h.Faults[i])
	}
	slices.SortFunc(c.faults, func(a, b *history.Fault) int { return cmp.Compare(a.Start, b.Start) })
	return c
}

func each[T any](all []T, of func(*T) *life, put func(*life, *T)) {
	for i := range all {
		if l := of(&all[i]); l != nil {
			put(l, &all[i])
		}
	}
}

func (c *checker) life(topic, id string) *life {
	key := ident{topic, id}
	l := c.lives[key]
	if l == nil {
		l = &life{ident: key}
		c.lives[key] = l
	}
	return l
}

// identity returns the id of an op's task: its caller's, or the default id of its intake position.
func (c *checker) identity(o *history.Op) string {
	if o.ID != "" {
		return o.ID
	}
	return c.place(o)
}

// place returns the position of an op in the intake, by which its answers name it.
func (c *checker) place(o *history.Op) string {
	return fmt.Sprintf("%s/%d/%d", c.h.Run.Intake, o.Partition, o.Offset)
}

// sorted returns the lives in the order of their first request, so that findings always come in the
// same order.
func (c *checker) sorted() []*life {
	out := make([]*life, 0, len(c.lives))
	for _, l := range c.lives {
		out = append(out, l)
	}
	slices.SortFunc(out, func(a, b *life) int { return cmp.Compare(a.ops[0].N, b.ops[0].N) })
	return out
}

// notAccepted checks a request that the intake does not hold.
func (c *checker) notAccepted(o *history.Op) {
	if o.Outcome == history.OK {
		c.find("I1", o.Topic, o.ID, "request %d was acknowledged and the intake does not hold it", o.N)
		return
	}
	c.Figures.Fates[o.Outcome]++
}

func (c *checker) find(invariant, topic, id, format string, args ...any) {
	c.Findings = append(c.Findings, Finding{invariant, topic, id, fmt.Sprintf(format, args...)})
}

func (c *checker) about(l *life, invariant, format string, args ...any) {
	c.find(invariant, l.topic, l.id, format, args...)
}

// disturbed reports whether a fault, or its aftermath, overlaps the span.
func (c *checker) disturbed(from, to int64) bool {
	for _, f := range c.faults {
		if f.Start > to {
			return false
		}
		if c.Figures.over(f, c.bounds.Recovery) >= from {
			return true
		}
	}
	return false
}
