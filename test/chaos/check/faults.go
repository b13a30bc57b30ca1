package check

import (
	"cmp"
	"slices"

	"github.com/notyet/notyet/test/chaos/history"
)

// judgeFaults reports faults without visible effect, because they prove nothing. It counts the
// effects of the others.
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

// gap returns the longest time without an arrival that begins in the span.
func gap(arrivals []int64, from, to int64) int64 {
	longest, before := int64(0), from
	i, _ := slices.BinarySearch(arrivals, from)
	for ; i < len(arrivals) && before <= to; i++ {
		longest = max(longest, arrivals[i]-before)
		before = arrivals[i]
	}
	return longest
}

// takeover notes how long after a dispatcher's kill a task of its slots was sent under a higher
// epoch, which is the next owner's. Records of the killed one may be stored after its death, so the
// send logs identify the sender.
func (c *checker) takeover(f *history.Fault) {
	mine := c.owned(f.Killed, f.Start)
	sent := c.h.Sent
	i, _ := slices.BinarySearchFunc(sent, f.Start, func(s history.Sent, at int64) int { return cmp.Compare(s.At, at) })
	for ; i < len(sent) && sent[i].At < f.End+c.bounds.Recovery; i++ {
		s := &sent[i]
		l := c.lives[ident{s.Topic, s.ID}]
		if before, ok := mine[s.Slot]; !ok || s.Outcome || s.Epoch <= before || l == nil {
			continue
		}
		for _, d := range l.deliveries {
			if d.At >= s.At && d.Attempt == s.Attempt {
				note(c.Figures.Takeover, d.At-f.Start)
				return
			}
		}
	}
}

// owned returns the slots that a member had at an instant, with their epochs.
func (c *checker) owned(member string, at int64) map[int]int64 {
	mine := map[int]int64{}
	for i := range c.h.Slots {
		s := &c.h.Slots[i]
		if s.At > at {
			break
		}
		delete(mine, s.Slot)
		if s.Owner == member {
			mine[s.Slot] = s.Epoch
		}
	}
	return mine
}
