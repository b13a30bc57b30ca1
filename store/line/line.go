// Package line holds what the owner of a slot asks for: to take it and give it back, to claim its tasks, to read
// them, to settle them, to start runs of timers, and to move tasks to the slots where they belong while the number
// of slots changes. Slots under an epoch go in; tasks come out, and so does who won. Other packages of the store
// put tasks into the line.
package line

import "github.com/notyet/notyet/store/internal/handle"

// Line is a value without state of its own.
type Line struct {
	h       *handle.Handle
	reports Reports
}

// New makes the Line of a store.
func New(st handle.Source, reports Reports) Line { return Line{handle.Of(st), reports} }
