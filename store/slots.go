package store

import (
	"github.com/notyet/notyet/store/internal/handle"
)

// The lines of tasks.
type (
	Slot      = handle.Slot      // one line, with the two offsets that move along it
	SlotPos   = handle.SlotPos   // a position in a slot's order
	SlotEpoch = handle.SlotEpoch // a slot held under an epoch
	Change    = handle.Change    // where a slot stands while the number of slots changes
	Place     = handle.Place     // where a task stands in the line, for the index
)

// ErrFenced: the slot has another owner by now, or the intake another reader. Nothing was changed.
var ErrFenced = handle.ErrFenced
