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
