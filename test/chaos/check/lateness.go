package check

import (
	"cmp"
	"slices"

	"github.com/HdrHistogram/hdrhistogram-go"

	"github.com/notyet/notyet/test/chaos/history"
)

// lead is how long before a fault a task may be due and still be affected by it, in ms: a late task
// is in progress that long.
const lead = 1500

// judgeLateness checks I12: after each fault lateness returns below its bound, no task stays stuck,
// and none is late outside faults. It also checks I13: during a burst of one target the others stay
// within a bound.
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
		at := c.earliest(d)
		note(c.Figures.Lateness[c.phase(at)], d.At-at)
		if d.At-at <= c.bounds.Recovery {
			continue
		}
		if well := c.calmTime(d, at, d.At); well > c.bounds.Recovery {
			c.find("I12", d.Topic, d.ID, "%d ms late, of which nothing was broken for %d", d.At-at, well)
		}
	}
	c.judgeBursts(firsts)
	c.judgeAttacks(firsts)
	for _, what := range c.h.Run.Problems {
		c.find("I12", "", "", "%s", what)
	}
}

// calmTime returns how much of a span was outside all faults that may delay a delivery.
func (c *checker) calmTime(d *history.Delivery, from, to int64) int64 {
	calm, over := int64(0), from
	for _, f := range c.faults { // in the order of their starts
		if f.HoldsUp(d) && f.End > over && f.Start < to {
			calm += max(0, f.Start-over)
			over = f.End
		}
	}
	return calm + max(0, to-over)
}

// earliest returns the earliest possible delivery time: the due time, or the time when the intake
// had the task.
func (c *checker) earliest(d *history.Delivery) int64 { return max(d.Due, c.ops[d.Op].Accepted) }

// recovery notes when the last late task after a fault, and before the next one, was delivered.
func (c *checker) recovery(f *history.Fault, next int64, firsts []*history.Delivery) {
	over, last := f.End, &history.Delivery{}
	from, _ := slices.BinarySearchFunc(firsts, f.End, func(d *history.Delivery, at int64) int { return cmp.Compare(d.At, at) })
	for _, d := range firsts[from:] {
		if d.At >= next {
			break
		}
		if at := f.End + c.calmTime(d, f.End, d.At); d.At-c.earliest(d) > c.bounds.Late && at > over { // another fault may hold it up longer
			over, last = at, d
		}
	}
	c.Figures.recovered[f] = over
	if over-f.End > c.bounds.Recovery {
		c.find("I12", last.Topic, last.ID, "fault %d (%s): tasks were late until %d ms after it was healed", f.N, f.Kind, over-f.End)
	}
}

// phase returns the phase at an instant.
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

// Burst is the fault that breaks nothing: many tasks of one target are due at once.
const Burst = "burst"

func (c *checker) judgeBursts(firsts []*history.Delivery) {
	for _, f := range c.faults {
		if f.Kind != Burst {
			continue
		}
		c.during(f, firsts, c.Figures.Beside)
	}
	calm := c.calmP99()
	if p99 := c.Figures.Beside.ValueAtQuantile(99); p99 > calm+c.bounds.Flood {
		c.find("I13", "", "", "beside bursts the other targets' tasks were %d ms late at p99, %d in calm", p99, calm)
	}
}

// during notes how late the tasks of other targets were that were due while a fault lasted.
func (c *checker) during(f *history.Fault, firsts []*history.Delivery, h *hdrhistogram.Histogram) {
	for _, d := range firsts {
		if at := c.earliest(d); d.Topic != f.Target && at >= f.Start && at <= f.End {
			note(h, d.At-at)
		}
	}
}

func (c *checker) calmP99() int64 { return c.Figures.Lateness["calm"].ValueAtQuantile(99) }
