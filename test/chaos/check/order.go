package check

import (
	"cmp"
	"math"
	"slices"

	"github.com/notyet/notyet/test/chaos/history"
)

// line is what one key of one target gets.
type line struct {
	topic, key string
	high       bool
}

// judgeOrder is I7: first attempts of one key, target and priority go in the order of their due times. The place of a task in it is certain
// if it was stored long enough before its due time (Bounds.Ahead): tasks due after it may have been taken already when it is stored, which
// happens a look-ahead before they are due, and it goes to the first free place then.
func (c *checker) judgeOrder() {
	latest := map[line]*history.Delivery{} // the one due last of those that went
	stored := c.storedBy()
	for _, d := range c.byArrival() {
		o := c.ops[d.Op]
		// A request about a known task may have to wait for the outcome of a delivery before it is placed.
		// One that is refused by its topic is asked again alone.
		if len(c.lives[ident{o.Topic, c.identity(o)}].ops) > 1 || stored(o)+c.bounds.Ahead > o.DueAt() || o.Mortal {
			continue
		}
		c.Figures.Ordered++
		at := line{o.Topic, o.Key, o.High}
		before := latest[at]
		if before == nil || before.Due <= d.Due {
			latest[at] = d
			continue
		}
		c.judgeInversion(d, before)
	}
}

// judgeInversion: d went after one that was due later. A fault between the two instants at which they might have been
// stored, and the later's sending, may have put off one and not the other; it is counted.
func (c *checker) judgeInversion(d, before *history.Delivery) {
	if f := c.disorder(c.ops[d.Op].Accepted, d.At); f != nil {
		c.Figures.Inversions[f.Kind]++
		return
	}
	c.find("I7", d.Topic, d.ID, "due at %d, it went at %d, after %s, which was due at %d, had gone at %d", d.Due, d.At, before.ID, before.Due, before.At)
}

// storedBy answers when a request was in the database at the latest, as the samples of offsets show.
func (c *checker) storedBy() func(*history.Op) int64 {
	samples := map[int32][]history.OffsetSample{}
	for _, s := range c.h.Offsets {
		all := samples[s.Partition]
		if s.Topic == c.h.Run.Intake && (len(all) == 0 || s.Stored > all[len(all)-1].Stored) {
			samples[s.Partition] = append(all, s)
		}
	}
	return func(o *history.Op) int64 {
		all := samples[o.Partition]
		i, _ := slices.BinarySearchFunc(all, o.Offset+1, func(s history.OffsetSample, next int64) int { return cmp.Compare(s.Stored, next) })
		if i == len(all) {
			return math.MaxInt64 / 2
		}
		return all[i].At
	}
}

// disorder is a fault in the span that may put off single tasks.
func (c *checker) disorder(from, to int64) *history.Fault {
	for _, f := range c.faults {
		if f.Disorder && f.Start <= to && f.End+c.bounds.Copies >= from {
			return f
		}
	}
	return nil
}
