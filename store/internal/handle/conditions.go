package handle

// Conditions are the basis of an owner's claims, settlements and runs, and of a scanner's writes.
// Taking and giving back slots has conditions of its own: see store/line/owners.go. Only the
// store's tests change them: each takes one away, and must see that a contest notices.
type Conditions struct {
	Shared    string // the lock of a writer that reads claimed, and holds it where it is
	Exclusive string // the lock of a writer on what it is about to change
	Held      string // a slot is held under an epoch: one that was given back has no owner
	HeldUnder func(slot Slot, epoch int64) bool
	Drained   string                              // all that was claimed of a slot is settled
	InPlace   string                              // a claim goes no further than the slot's tasks stand where they belong
	Idle      func(slot Slot, claimed int64) bool // all that was claimed of a slot is settled, and claimed is where its owner has it
	Expected  string                              // how the offset of a source compares with the expected one
}

// AllConditions are those of the product.
func AllConditions() Conditions {
	return Conditions{
		Shared: LockShared, Exclusive: LockExclusive,
		Held:      " AND epoch = ? AND LENGTH(owner) > 0",
		HeldUnder: func(slot Slot, epoch int64) bool { return slot.Epoch == epoch && slot.Owner != "" },
		Drained:   " AND claimed = done",
		InPlace:   " AND moved >= ?",
		Idle:      func(slot Slot, claimed int64) bool { return slot.Claimed == claimed && slot.Done == claimed },
		Expected:  "=",
	}
}
