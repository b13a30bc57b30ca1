package task

import (
	"github.com/notyet/notyet/internal/slots"
	"github.com/notyet/notyet/schemas"
	"github.com/notyet/notyet/timer"
)

// Hashed returns the id by which a task without a key is spread over the slots. The runs of a timer
// are spread by the timer's id, so they stand in its slot. A run that is replayed is a task by itself.
func Hashed(seq int64, replay int, id string) string {
	if source, _ := SplitSeq(seq); source != RunSource || replay > 0 {
		return id
	}
	if of, _, ok := timer.SplitRunID(id); ok {
		return of
	}
	return id
}

// line returns the slot in which a task is placed anew. While the number of slots does not change, that
// is the one in which it stands.
func (t *Task) line(spread slots.Spread) int {
	if spread.Whole() {
		return t.Slot
	}
	key, ok := schemas.BodyKey(t.Body)
	if !ok {
		return t.Slot
	}
	return spread.Of(t.Topic, key, Hashed(t.Seq, t.Replay, t.ID))
}
