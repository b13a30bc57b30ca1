package check

import (
	"cmp"
	"math"
	"slices"

	"github.com/notyet/notyet/test/chaos/history"
)

// orderKey identifies the deliveries of one key of one target.
type orderKey struct {
	topic, key string
	high       bool
}

// judgeOrder checks I7: first attempts of one key, target and priority are delivered in the order
// of their due times. A task's position is certain if it was stored long enough before its due time
// (Bounds.Ahead). If it is stored later, tasks due after it may already be claimed, which happens a
// look-ahead before they are due. The task then gets the first free position.
func (c *checker) judgeOrder() {
	latest := map[orderKey]*history.Delivery{} // the one with the latest due time so far
	stored := c.storedBy()
	for _, d := range c.byArrival() {
		o := c.ops[d.Op]
		// A request about a known task may have to wait for the outcome of a delivery before it
		// gets a position. One that its topic refuses is tried again alone.
		if len(c.lives[ident{o.Topic, c.identity(o)}].ops) > 1 || stored(o)+c.bounds.Ahead > o.DueAt() || o.MayDie {
			continue
		}
		c.Figures.Ordered++
		at := orderKey{o.Topic, o.Key, o.High}
		before := latest[at]
		if before == nil || before.Due <= d.Due {
			latest[at] = d
			continue
		}
		c.judgeInversion(d, before)
	}
}

// judgeInversion checks a d that was delivered after a task with a later due time. A fault between
// the two instants at which they could be stored and the delivery of the later one may have delayed
// only one of them; it is counted.
func (c *checker) judgeInversion(d, before *history.Delivery) {
	if f := c.disorder(c.ops[d.Op].Accepted, d.At); f != nil {
		c.Figures.Inversions[f.Kind]++
		return
	}
	c.find("I7", d.Topic, d.ID, "due at %d, it went at %d, after %s, which was due at %d, had gone at %d", d.Due, d.At, before.ID, before.Due, before.At)
}

// storedBy returns a function that says when a request was in the database at the latest, according
// to the samples of offsets.
func (c *checker) storedBy() func(*history.Op) int64 {
	samples, databases := map[[2]int][]history.OffsetSample{}, 1
	for _, s := range c.h.Offsets {
		databases = max(databases, s.Database+1)
		at := [2]int{s.Database, int(s.Partition)}
		all := samples[at]
		if s.Topic == c.h.Run.Intake && (len(all) == 0 || s.Stored > all[len(all)-1].Stored) {
			samples[at] = append(all, s)
		}
	}
	return func(o *history.Op) (last int64) {
		for d := range databases { // it is not known whose request it is
			all := samples[[2]int{d, int(o.Partition)}]
			i, _ := slices.BinarySearchFunc(all, o.Offset+1, func(s history.OffsetSample, next int64) int { return cmp.Compare(s.Stored, next) })
			if i == len(all) {
				return math.MaxInt64 / 2
			}
			last = max(last, all[i].At)
		}
		return last
	}
}

// disorder returns a fault in the span that may delay single tasks. A database that was set back stores again what it had forgotten, behind
// what it had not.
func (c *checker) disorder(from, to int64) *history.Fault {
	for _, f := range c.faults {
		if (f.Disorder || f.Rewinds) && f.Start <= to && f.End+c.bounds.Copies >= from {
			return f
		}
	}
	return nil
}
