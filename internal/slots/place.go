package slots

// Pos is a position in the order of a slot, Unix ms.
type Pos struct {
	Slot int
	Pos  int64
}

// TimersChanged is the Pos of a wake that says that timers of the slot were set or enabled. It is
// merged with no other wake of the slot: neither hides the other.
const TimersChanged = -1

// Place is where a task stands: its slot, its position in the order of the slot, and its seq, which names the task and its version.
type Place struct {
	Slot int
	Pos  int64
	Seq  int64
}
