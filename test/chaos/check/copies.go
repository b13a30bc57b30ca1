package check

import (
	"cmp"
	"slices"

	"github.com/notyet/notyet/test/chaos/history"
)

// attempt identifies one delivery of one request. Copies share it.
type attempt struct {
	op              int64
	attempt, replay int
}

// judgeCopies checks every record on a target topic by itself (I2, I3) and against the other copies
// of its attempt (I4).
func (c *checker) judgeCopies(l *life) {
	seen := map[attempt]*history.Delivery{} // the previous copy
	keys := map[string]attempt{}
	for _, d := range l.deliveries {
		o := c.ops[d.Op]
		if o == nil || o.Topic != l.topic || c.identity(o) != l.id {
			c.about(l, "I3", "a record at %s/%d/%d is of request %d, which is of another task or of nobody", d.Topic, d.Partition, d.Offset, d.Op)
			continue
		}
		c.judgeRecord(l, o, d)
		a := attempt{d.Op, d.Attempt, d.Replay}
		if other, used := keys[d.Key]; used && other != a {
			c.about(l, "I4", "attempt %d of request %d carries the delivery key of attempt %d of request %d", a.attempt, a.op, other.attempt, other.op)
		}
		keys[d.Key] = a
		if before := seen[a]; before != nil {
			c.judgeCopy(l, before, d)
		}
		seen[a] = d
	}
}

func (c *checker) judgeRecord(l *life, o *history.Op, d *history.Delivery) {
	c.Figures.Deliveries++
	if d.Hash != o.Hash {
		c.about(l, "I3", "the record at %s/%d/%d differs from request %d in key, value or headers", d.Topic, d.Partition, d.Offset, o.N)
	}
	due := o.DueAt()
	switch {
	case o.IfExists == history.Merge || c.fired[o.N] != nil || o.Storm: // judged where it was merged, or fired, or in the order of all
		due = d.Due
	case d.Due != due:
		c.about(l, "I3", "the record at %s/%d/%d says it is due at %d, request %d says %d", d.Topic, d.Partition, d.Offset, d.Due, o.N, due)
	}
	published := d.At
	if d.Stamp > 0 {
		published = d.Stamp // At may stand for what came before it
	}
	c.Figures.Earliest = min(c.Figures.Earliest, published-due)
	if published < due {
		c.Figures.Early++
		c.about(l, "I2", "attempt %d of request %d was published at %d, %d ms before it was due", d.Attempt, o.N, published, due-published)
	}
}

// judgeCopy checks a second copy: it carries the first one's key, and a fault explains it.
func (c *checker) judgeCopy(l *life, before, d *history.Delivery) {
	if before.Key != d.Key {
		c.about(l, "I4", "two copies of attempt %d of request %d carry different delivery keys", d.Attempt, d.Op)
	}
	if f := c.cause(before.At, d.At); f != nil {
		c.Figures.Copies[f.Kind]++
		return
	}
	c.Figures.Unexplained++
	c.about(l, "I4", "attempt %d of request %d was published at %d and at %d, and no fault explains it", d.Attempt, d.Op, before.At, d.At)
}

// cause returns the fault that explains a copy at second of what was published at first. The fault,
// or its aftermath, was in progress when the second was sent, and the first had no time to be
// settled before the fault began. Time of other faults does not count: they delay settling, and
// copies too.
func (c *checker) cause(first, second int64) *history.Fault {
	for _, f := range slices.Backward(c.faults) {
		if f.Doubles && c.calmTime(nil, first, f.Start) <= c.bounds.Settled && first <= f.End+c.bounds.Copies && f.Start <= second && c.calmTime(nil, f.End, second) <= c.bounds.Copies {
			return f
		}
		if f.Rewinds && f.Start <= second && c.calmTime(nil, f.End, second) <= c.bounds.Copies {
			return f
		}
	}
	return nil
}

// judgeStrangers looks for deliveries that belong to no task, and for delivery keys that two tasks
// share.
func (c *checker) judgeStrangers() {
	keys := make(map[string]ident, len(c.h.Deliveries))
	for i := range c.h.Deliveries {
		d := &c.h.Deliveries[i]
		id := ident{d.Topic, d.ID}
		if c.lives[id] == nil {
			c.find("I3", d.Topic, d.ID, "a phantom: nobody asked for the record at %s/%d/%d", d.Topic, d.Partition, d.Offset)
		}
		if other, used := keys[d.Key]; used && other != id {
			c.find("I4", d.Topic, d.ID, "shares its delivery key with %s/%s", other.topic, other.id)
		}
		keys[d.Key] = id
	}
}

// byArrival returns the first copies of first attempts, in the order of the broker's clock.
func (c *checker) byArrival() []*history.Delivery {
	if c.firsts != nil {
		return c.firsts
	}
	seen := make(map[int64]bool, len(c.h.Deliveries))
	all := make([]*history.Delivery, 0, len(c.h.Deliveries))
	for i := range c.h.Deliveries {
		all = append(all, &c.h.Deliveries[i])
	}
	slices.SortFunc(all, func(a, b *history.Delivery) int {
		return cmp.Or(cmp.Compare(a.At, b.At), cmp.Compare(a.Topic, b.Topic), cmp.Compare(a.Partition, b.Partition), cmp.Compare(a.Offset, b.Offset))
	})
	for _, d := range all {
		if o := c.ops[d.Op]; d.Attempt == 1 && !seen[d.Op] && o != nil && o.Accepted > 0 {
			seen[d.Op] = true
			c.firsts = append(c.firsts, d)
		}
	}
	return c.firsts
}
