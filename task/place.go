package task

import (
	"github.com/notyet/notyet/internal/slots"
	"github.com/notyet/notyet/schemas"
	"github.com/notyet/notyet/timer"
)

// Hashed returns the id by which a task without a key is spread over the slots. A timer's runs are
// spread by the timer's id, to stand in its slot. A replayed run is a task by itself.
func Hashed(seq int64, replay int, id string) string {
	if !IsRun(seq) || replay > 0 {
		return id
	}
	if of, _, ok := timer.SplitRunID(id); ok {
		return of
	}
	return id
}

// TimerOf returns the identity of a run's timer.
func TimerOf(topic, id string) [16]byte { return Ident(topic, Hashed(Seq(RunSource, 0), 0, id)) }

// line returns the slot for a new placing: the task's own, unless the number of slots changes.
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

// Phase is where a task stands, given its slot's offsets.
type Phase int8

const (
	Pending  Phase = iota // nobody has taken it: it can be cancelled, replaced, merged, fired
	InFlight              // its slot's owner has it
	Between               // between attempts, or until a report comes
	Ended                 // delivered, cancelled, reported, dead
	SentOnce              // in flight, and a delivery of it is the only one: for reports
	Unsure                // not claimed as far as the database remembers, but it may have forgotten a claim
)

// Phase returns where the task stands, in a slot that is sure. Everything in its slot up to claimed
// belongs to the slot's owner, and everything up to done is settled.
func (t *Task) Phase(claimed, done int64) Phase {
	switch {
	case t.Slot == OutOfLine, t.Pos <= done:
		return Ended
	case t.Pos <= claimed:
		return InFlight
	case t.State == StateLine:
		return Pending
	default:
		return Between
	}
}

// heldFrom begins the places of held tasks. Places below are instants, Unix ms; none comes near.
const heldFrom = int64(1) << 50

// Held returns the place of a task held by its target's policy: in the slot's line, but beyond
// every claim, in the order of the missed releases. The task stays pending: it can be cancelled,
// replaced and fired like any other.
func Held(at int64) int64 { return heldFrom + min(max(at, 0), heldFrom-1) }

// IsHeld tells whether a place is one of held tasks.
func IsHeld(pos int64) bool { return pos >= heldFrom }

// HeldSince returns the instant of a held place; any other place is returned as it is.
func HeldSince(pos int64) int64 {
	if IsHeld(pos) {
		return pos - heldFrom
	}
	return pos
}
