package index

import "github.com/notyet/notyet/internal/slots"

// News are tasks that a transaction has placed or taken away, and the slots whose timers it has
// changed. The index is a hint: the owner of a slot finds what the index does not take.
type News struct {
	Added, Removed []slots.Placed
	Timers         []int
}

// Entries returns the added tasks up to a position, Unix ms: the index knows the near future alone.
func (n News) Entries(upTo int64) []Entry { return entries(n.Added, upTo) }

// Gone returns the tasks that were taken away, likewise.
func (n News) Gone(upTo int64) []Entry { return entries(n.Removed, upTo) }

func entries(placed []slots.Placed, upTo int64) (out []Entry) {
	for _, p := range placed {
		if p.Pos <= upTo {
			out = append(out, p.Place)
		}
	}
	return out
}

// Wakes returns, for each slot, when the first added task is due, up to an instant, Unix ms, and
// that its timers have changed.
func (n News) Wakes(upTo int64) []SlotPos {
	first := wakes{}
	for _, p := range n.Added {
		if p.Due <= upTo {
			first.add(SlotPos{Slot: p.Slot, Pos: p.Due})
		}
	}
	for _, slot := range n.Timers {
		first.add(SlotPos{Slot: slot, Pos: TimersChanged})
	}
	return first.list()
}
