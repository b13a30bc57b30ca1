package store

import "github.com/notyet/notyet/internal/faultpoint"

// sabotage takes away one of the conditions that everything rests on. Only this package's tests set
// it, to prove that they would notice if the condition were missing.
type sabotage int8

const (
	noSharedLock    sabotage = iota + 1 // writers read claimed, but do not hold it where it is
	noExclusiveLock                     // writers read what they are about to change, but do not lock it
	noEpochCheck                        // an owner of the past still counts
	noOffsetCheck                       // a batch counts as often as it is brought
	noReleaseCheck                      // a slot is given back as it is, and its epoch still counts
)

func (s *Store) sabotaged() sabotage {
	if faultpoint.Without(faultpoint.ReleasedWhenDrained) {
		return noReleaseCheck
	}
	return s.sabotage
}

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

// holds is fence for a slot that was read under a lock.
func (s *Store) holds(slot Slot, epoch int64) bool {
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
