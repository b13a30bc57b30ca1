package store

import (
	"github.com/notyet/notyet/store/internal/handle"
)

// Slot is one line of tasks, with the two offsets that move along it.
type Slot = handle.Slot

// SlotPos is a position in a slot's order.
type SlotPos = handle.SlotPos

// Change is where a slot stands while the number of slots changes.
type Change = handle.Change

// SlotEpoch is a slot held under an epoch.
type SlotEpoch = handle.SlotEpoch

// Place is where a task stands in the line, for the index.
type Place = handle.Place

// ErrFenced: the slot has another owner by now, or the intake another reader. Nothing was changed.
var ErrFenced = handle.ErrFenced
