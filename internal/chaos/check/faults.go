package check

import (
	"cmp"
	"slices"

	"github.com/notyet/notyet/internal/chaos/history"
	"github.com/notyet/notyet/internal/slots"
)

// judgeFaults: a fault that nobody could see proves nothing, so it fails the run. What the others did is counted.
func (c *checker) judgeFaults() {
	arrivals := make([]int64, 0, len(c.h.Deliveries))
	for i := range c.h.Deliveries {
		arrivals = append(arrivals, c.h.Deliveries[i].At)
	}
	slices.Sort(arrivals)
	for _, f := range c.faults {
		k := c.Figures.Kinds[f.Kind]
		if k == nil {
			k = &Kind{Recovery: histogram()}
			c.Figures.Kinds[f.Kind] = k
		}
		k.Count++
		over := c.Figures.recovered[f]
		note(k.Recovery, over-f.End)
		k.Gap = max(k.Gap, gap(arrivals, f.Start, over))
		if f.Effect {
			k.Effects++
		} else {
			c.find("fault", "", "", "fault %d (%s of %s) had no effect: %s", f.N, f.Kind, f.Target, f.Evidence)
		}
		if f.Killed != "" {
			c.takeover(f)
		}
	}
}

// gap is the longest time without an arrival that begins in the span.
func gap(arrivals []int64, from, to int64) int64 {
	longest, before := int64(0), from
	i, _ := slices.BinarySearch(arrivals, from)
	for ; i < len(arrivals) && before <= to; i++ {
		longest = max(longest, arrivals[i]-before)
		before = arrivals[i]
	}
	return longest
}

// takeover notes how long after a dispatcher's kill the first task of its slots came out again.
func (c *checker) takeover(f *history.Fault) {
	const onItsWay = 100 // ms: what the killed one had sent may be stored so much later
	mine := c.owned(f.Killed, f.Start)
	firsts := c.byArrival()
	i, _ := slices.BinarySearchFunc(firsts, f.Start+onItsWay, func(d *history.Delivery, at int64) int { return cmp.Compare(d.At, at) })
	for ; i < len(firsts) && firsts[i].At < f.End+c.bounds.Recovery; i++ {
		d := firsts[i]
		o := c.ops[d.Op]
		if mine[slots.Of(o.Topic, []byte(o.Key), d.ID, c.h.Run.Slots)] {
			note(c.Figures.Takeover, d.At-f.Start)
			return
		}
	}
}

// owned are the slots that a member had at an instant.
func (c *checker) owned(member string, at int64) map[int]bool {
	mine := map[int]bool{}
	for i := range c.h.Slots {
		s := &c.h.Slots[i]
		if s.At > at {
			break
		}
		mine[s.Slot] = s.Owner == member
	}
	return mine
}
