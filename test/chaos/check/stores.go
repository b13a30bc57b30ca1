package check

import (
	"slices"

	"github.com/cespare/xxhash/v2"
	jump "github.com/dgryski/go-jump"

	"github.com/notyet/notyet/test/chaos/history"
)

// judgeSlots checks I9: a slot's epoch, claimed and done never fall.
func (c *checker) judgeSlots() {
	last := map[int]*history.SlotSample{}
	for i := range c.h.Slots {
		s := &c.h.Slots[i]
		before := last[s.Slot]
		last[s.Slot] = s
		switch {
		case s.Gone:
			delete(last, s.Slot)
		case s.Done > s.Claimed:
			c.find("I9", "", "", "slot %d has settled up to %d and claimed up to %d", s.Slot, s.Done, s.Claimed)
		case before == nil || c.rewound(before.At, s.At):
		case s.Epoch < before.Epoch:
			c.find("I9", "", "", "the epoch of slot %d fell from %d to %d at %d", s.Slot, before.Epoch, s.Epoch, s.At)
		case (s.Claimed < before.Claimed || s.Done < before.Done) && !c.unsynced(before.At, s.At):
			c.find("I9", "", "", "slot %d went back from (%d, %d] to (%d, %d] at %d", s.Slot, before.Done, before.Claimed, s.Done, s.Claimed, s.At)
		}
	}
}

// rewound reports whether the database was restored in the span.
func (c *checker) rewound(from, to int64) bool {
	for _, f := range c.faults {
		if f.Rewinds && f.Start <= to && f.End >= from {
			return true
		}
	}
	return false
}

// forgot reports whether the database may have forgotten the commit that an event told. Some events are dated before their commit, so that an
// event which comes long after the set-back was committed after it.
func (c *checker) forgot(e *history.Event) bool {
	return slices.ContainsFunc(c.faults, func(f *history.Fault) bool {
		return f.Rewinds && f.Start <= e.At && e.Since() <= f.End && e.At <= f.End+c.bounds.Recovery
	})
}

// unsynced reports whether the first of two looks was just before the database was killed. InnoDB shows a commit before its log is on the disk: nobody
// had the answer to that commit yet.
func (c *checker) unsynced(from, to int64) bool {
	for _, f := range c.faults {
		if f.Kind == "mysql-killed" && from >= f.Start-1000 && from <= f.End && to >= f.Start {
			return true
		}
	}
	return false
}

// judgeOffsets checks I10: everything below the offset that Kafka has committed is stored.
func (c *checker) judgeOffsets() {
	type partition struct {
		topic    string
		n        int32
		database int
	}
	type state struct {
		at     int64 // of the last sample
		behind bool  // the database was set back, and has not caught up
	}
	seen := map[partition]state{}
	for _, s := range c.h.Offsets {
		p := partition{s.Topic, s.Partition, s.Database}
		before, known := seen[p]
		if !known {
			before.at = s.At
		}
		ahead := s.Committed > s.Stored
		behind := ahead && (before.behind || c.rewound(before.at, s.At))
		seen[p] = state{s.At, behind}
		if ahead && !behind {
			c.find("I10", "", "", "%s/%d: offset %d was committed, and the database had %d (at %d)", s.Topic, s.Partition, s.Committed, s.Stored, s.At)
		}
	}
}

// judgeIndex checks I11: at rest the index holds exactly the pending tasks of the window.
func (c *checker) judgeIndex() {
	extra, missing := c.h.Rest.Drift()
	for _, e := range extra {
		c.find("I11", "", "", "the index of slot %d holds seq %d at %d, which does not wait there", e.Slot, e.Seq, e.Pos)
	}
	for _, e := range missing {
		c.find("I11", "", "", "the index of slot %d lacks seq %d at %d", e.Slot, e.Seq, e.Pos)
	}
	for _, p := range c.h.Rest.Pending {
		if p.Pos <= c.h.Rest.Until && !c.h.Rest.Indexless {
			c.Figures.Indexed++
		}
		c.judgePlace(p)
	}
}

// judgePlace checks the other half of I11: a pending task stands in the slot of its key, whatever numbers of slots there were before.
func (c *checker) judgePlace(p history.Pending) {
	l := c.lives[ident{p.Topic, p.ID}]
	database, slot := p.Slot/history.DatabaseSlots, p.Slot%history.DatabaseSlots
	if l == nil || database >= len(c.h.Rest.Slots) {
		return
	}
	c.Figures.Placed++
	hash := xxhash.Sum64String(p.Topic + "\x00" + l.ops[0].Key) // all requests about a task carry one key
	if want := int(jump.Hash(hash, c.h.Rest.Slots[database])); slot != want {
		c.find("I11", p.Topic, p.ID, "it stands in slot %d, and of %d slots it belongs in %d", slot, c.h.Rest.Slots[database], want)
	}
}
