package slots

// Pos is a position in the order of a slot, Unix ms.
type Pos struct {
	Slot int
	Pos  int64
}

// TimersChanged is the Pos of a wake about set or enabled timers of the slot. Such a wake merges
// with no other: neither hides the other.
const TimersChanged = -1

// Place is where a task stands: slot, position in its order, and seq, which names task and version.
type Place struct {
	Slot int
	Pos  int64
	Seq  int64
}

// Placed is a place of the line, for the index.
type Placed struct {
	Place
	Due int64 // when its next attempt is to be made; earlier than Pos if the line was already claimed beyond that
}
