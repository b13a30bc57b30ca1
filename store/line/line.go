// Package line serves the owner of a slot: taking and giving back slots, claiming, reading and
// settling tasks, starting runs of timers, and moving tasks to their slots while the number of
// slots changes. Slots under an epoch go in; tasks come out, and so does who won. Other packages
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
