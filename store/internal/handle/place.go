package handle

import (
	"github.com/notyet/notyet/internal/slots"
	"github.com/notyet/notyet/task"
)

// Place is where a task stands in the line, for the index.
type Place struct {
	slots.Place
	Due int64 // when its next attempt is to be made; earlier than Pos if the line was already claimed beyond that
}

func PlaceOf(t *task.Task) Place { return NewPlace(t.Slot, t.Pos, t.Seq, t.Due) }

func NewPlace(slot int, pos, seq, due int64) Place {
	return Place{slots.Place{Slot: slot, Pos: pos, Seq: seq}, due}
}
