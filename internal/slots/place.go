package slots

// Pos is a position in the order of a slot, Unix ms.
type Pos struct {
	Slot int
	Pos  int64
}

// Place is where a task stands: its slot, its position in the order of the slot, and its seq, which names the task and its version.
type Place struct {
	Slot int
	Pos  int64
	Seq  int64
}
