package store

// conditions are what claims, settlements and runs of an owner, and writes of a scanner, rest on. Taking and giving back
// slots has conditions of its own: see slots.go. Only tests of this package change them: each takes one away, and must see
// that a contest notices.
type conditions struct {
	shared    string // the lock of a writer that reads claimed, and holds it where it is
	exclusive string // the lock of a writer on what it is about to change
	held      string // a slot is held under an epoch: one that was given back has no owner
	heldUnder func(slot Slot, epoch int64) bool
	drained   string                              // all that was claimed of a slot is settled
	inPlace   string                              // a claim goes no further than the slot's tasks stand where they belong
	idle      func(slot Slot, claimed int64) bool // all that was claimed of a slot is settled, and claimed is where its owner has it
	expected  string                              // how the offset of a source compares with the expected one
}

func allConditions() conditions {
	return conditions{
		shared: lockShared, exclusive: lockExclusive,
		held:      " AND epoch = ? AND LENGTH(owner) > 0",
		heldUnder: func(slot Slot, epoch int64) bool { return slot.Epoch == epoch && slot.Owner != "" },
		drained:   " AND claimed = done",
		inPlace:   " AND moved >= ?",
		idle:      func(slot Slot, claimed int64) bool { return slot.Claimed == claimed && slot.Done == claimed },
		expected:  "=",
	}
}
