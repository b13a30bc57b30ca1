package task

// heldFrom is where the places of held tasks begin. A place below it is an instant, Unix ms, and no due time comes near it.
const heldFrom = int64(1) << 50

// Held returns the place of a task that its target's policy keeps from being released: in the slot's
// line, but beyond every claim, in the order of the instants at which the tasks should have been
// released. The task stays pending: it can be cancelled, replaced and fired like any other.
func Held(at int64) int64 { return heldFrom + min(max(at, 0), heldFrom-1) }

// IsHeld tells whether a place is one of held tasks.
func IsHeld(pos int64) bool { return pos >= heldFrom }

// HeldSince returns the instant that a held place stands for; of any other place it is the place itself.
func HeldSince(pos int64) int64 {
	if IsHeld(pos) {
		return pos - heldFrom
	}
	return pos
}
