package check

import (
	"cmp"
	"slices"

	"github.com/notyet/notyet/test/chaos/history"
)

// lead is how long before a fault a task may be due and still be hit by it, in ms: one that is late is on its way so long.
const lead = 1500

// judgeLateness is I12: after each fault lateness returns under its bound, no task stays stuck, and in calm none is late;
// and I13: beside a burst of one target the others stay bounded.
func (c *checker) judgeLateness() {
	firsts := c.byArrival()
	for i, f := range c.faults {
		next := c.h.Run.End
		if i+1 < len(c.faults) {
			next = c.faults[i+1].Start
		}
		c.recovery(f, next, firsts)
	}
	for _, d := range firsts {
		at := c.wanted(d)
		note(c.Figures.Lateness[c.phase(at)], d.At-at)
		if d.At-at <= c.bounds.Recovery {
			continue
		}
		if well := c.well(at, d.At); well > c.bounds.Recovery {
			c.find("I12", d.Topic, d.ID, "%d ms late, of which nothing was broken for %d", d.At-at, well)
		}
	}
	c.judgeBursts(firsts)
	for _, what := range c.h.Run.Unrest {
		c.find("I12", "", "", "%s", what)
	}
}

// well is how much of a span was no fault's.
func (c *checker) well(from, to int64) int64 {
	total := to - from
	for _, f := range c.faults {
		if f.Beside {
			continue
		}
		total -= max(0, min(f.End, to)-max(f.Start, from))
	}
	return total
}

// wanted is when a task could be delivered at the earliest: as it was due, or as the intake had it.
func (c *checker) wanted(d *history.Delivery) int64 { return max(d.Due, c.ops[d.Op].Accepted) }

// recovery notes when, after a fault and before the next one, the last late task came.
func (c *checker) recovery(f *history.Fault, next int64, firsts []*history.Delivery) {
	over := f.End
	from, _ := slices.BinarySearchFunc(firsts, f.End, func(d *history.Delivery, at int64) int { return cmp.Compare(d.At, at) })
	for _, d := range firsts[from:] {
		if d.At >= next {
			break
		}
		if d.At-c.wanted(d) > c.bounds.Late {
			over = d.At
		}
	}
	c.Figures.recovered[f] = over
	if over-f.End > c.bounds.Recovery {
		c.find("I12", "", "", "fault %d (%s): tasks were late until %d ms after it was healed", f.N, f.Kind, over-f.End)
	}
}

// phase is what went on at an instant.
func (c *checker) phase(at int64) string {
	phase := "calm"
	for _, f := range c.faults {
		if f.Start-lead > at {
			break
		}
		if at <= f.End {
			return "fault"
		}
		if at <= c.Figures.recovered[f] {
			phase = "recovery"
		}
	}
	return phase
}

// Burst is the kind of fault that breaks nothing: many tasks of one target are due at once.
const Burst = "burst"

func (c *checker) judgeBursts(firsts []*history.Delivery) {
	for _, f := range c.faults {
		if f.Kind != Burst {
			continue
		}
		for _, d := range firsts {
			if at := c.wanted(d); d.Topic != f.Target && at >= f.Start && at <= f.End {
				note(c.Figures.Beside, d.At-at)
			}
		}
	}
	calm := c.Figures.Lateness["calm"].ValueAtQuantile(99)
	if p99 := c.Figures.Beside.ValueAtQuantile(99); p99 > calm+c.bounds.Flood {
		c.find("I13", "", "", "beside bursts the other targets' tasks were %d ms late at p99, %d in calm", p99, calm)
	}
}
