package task

// State is what a task's row says by itself. Whether a row in the line is pending, in flight or
// delivered follows from its place between its slot's offsets: nothing is written for a task that
// is simply delivered.
type State int8

const (
	StateLine   State = 0 // in the line, to be delivered at pos
	StateRetry  State = 1 // as StateLine, and no caller can change it: a retry, or a cancel came too late
	StateReport State = 2 // delivered and acknowledged by Kafka; a report is awaited until pos

	// Out of the line: slot is -1 and pos is when it ended.
	StateCancelled State = 10 // by a cancel without a version, or before any schedule
	StateTombstone State = 11 // by a cancel with a version: a schedule of that version or lower is stale
	StateSucceeded State = 12 // a consumer reported ok, or the delivery was settled out of the line
	StateDead      State = 13 // its dead letter says why; a run of a timer that was dropped has none
)

// OutOfLine is the slot of a task that has ended out of the line: cancelled, reported, dead. Its place is
// when it ended.
const OutOfLine = -1

// Task is one row. A task that is replaced or merged becomes a new row with a new Seq, so Seq names
// the task and its content.
type Task struct {
	Seq     int64 // see Seq
	Slot    int   // or OutOfLine
	Pos     int64 // place in the slot's line, Unix ms
	Class   Class // with the topic, its Lane
	Due     int64 // Unix ms
	State   State
	Attempt int   // deliveries made
	Replay  int   // times replayed from the dead letters
	Version int64 // -1: none
	Created int64 // Unix ms of the request that opened the task
	Topic   string
	ID      string
	Body    []byte // schemas.EncodeBody
}

// MadeByCancel tells whether no task of this identity is known, only a cancel with a version that
// came before it.
func (t *Task) MadeByCancel() bool { return t.State == StateTombstone && t.Due == 0 }
