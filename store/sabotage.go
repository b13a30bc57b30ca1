package store

// sabotage takes away one of the conditions that everything rests on. Only this package's tests set it, to prove that they
// would notice if the condition were missing.
type sabotage int8

const (
	noSharedLock    sabotage = iota + 1 // writers read claimed, but do not hold it where it is
	noExclusiveLock                     // writers read what they are about to change, but do not lock it
	noEpochCheck                        // an owner of the past still counts
	noOffsetCheck                       // a batch counts as often as it is brought
)

// fence is the condition on an owner's epoch.
func (s *Store) fence() string {
	if s.sabotage == noEpochCheck {
		return " AND epoch >= ?"
	}
	return " AND epoch = ?"
}

// expect is how a source's offset must compare with the expected one.
func (s *Store) expect() string {
	if s.sabotage == noOffsetCheck {
		return ">="
	}
	return "="
}
