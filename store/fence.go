package store

// What claims, settlements and runs of an owner, and writes of a scanner, rest on: conditions of their
// SQL statements. Tests take them away one by one: see sabotage.go. Taking and giving back slots has
// its own conditions: see slots.go.

// fence is the condition that a slot is held under an epoch. One that was given back has no owner.
func (s *Store) fence() string {
	switch s.sabotaged() {
	case noEpochCheck:
		return " AND epoch >= ?"
	case noReleaseCheck:
		return " AND epoch = ?"
	}
	return " AND epoch = ? AND LENGTH(owner) > 0"
}

// ownedUnder is fence for a slot that was read under a lock.
func (s *Store) ownedUnder(slot Slot, epoch int64) bool {
	switch s.sabotaged() {
	case noEpochCheck:
		return true
	case noReleaseCheck:
		return slot.Epoch == epoch
	}
	return slot.Epoch == epoch && slot.Owner != ""
}

// drained is the condition that all that was claimed of a slot is settled.
func (s *Store) drained() string {
	if s.sabotaged() == noReleaseCheck {
		return ""
	}
	return " AND claimed = done"
}

// expect is how a source's offset must compare with the expected one.
func (s *Store) expect() string {
	if s.sabotage == noOffsetCheck {
		return ">="
	}
	return "="
}
