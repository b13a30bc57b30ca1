package task

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

// Phase returns where the task stands, in a slot that is sure. Everything in its slot up to claimed belongs to the slot's
// owner, and everything up to done is settled.
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
