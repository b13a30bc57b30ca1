package store

import (
	"crypto/sha256"
	"database/sql"
	"encoding/binary"
	"strconv"
	"strings"

	"github.com/cespare/xxhash/v2"
)

// State is what a task row says by itself. Whether a row in the line is pending, in flight or delivered follows from its
// place between its slot's offsets: nothing is written for a task that is simply delivered.
type State int8

const (
	StateLine   State = 0 // in the line, to be delivered at pos
	StateRetry  State = 1 // in the line, to be delivered at pos whatever a caller asks for: again, or it was too late to cancel it
	StateReport State = 2 // delivered and acknowledged by Kafka; a report is awaited until pos

	// Out of the line: slot is -1 and pos is when it ended.
	StateCancelled State = 10 // by a cancel without a version, or before any schedule
	StateTombstone State = 11 // by a cancel with a version: a schedule of that version or lower is stale
	StateSucceeded State = 12 // a consumer reported ok, or the delivery was settled out of the line
	StateDead      State = 13 // see its dead letter
)

const outOfLine = -1

// Task is one row. Seq names the task and its content: a replaced or merged task is a new row.
type Task struct {
	Seq     int64 // intake source << 48 | intake offset
	Slot    int
	Pos     int64 // place in the slot's line, Unix ms
	Lane    Lane
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

// Ident is the identity of a task, (topic, id), in 16 bytes: short enough for a unique index, and too long to collide. Ids that
// end in a slash and a number, as default ids do, stand in its order: what comes together is written to few pages of the index,
// which hashes alone would scatter over all of it.
func Ident(topic, id string) [16]byte {
	b := make([]byte, 0, 512)
	b = append(b, topic...)
	b = append(b, 0) // never part of a topic name
	b = append(b, id...)
	sum := sha256.Sum256(b)
	ident := [16]byte(sum[:16])
	if i := strings.LastIndexByte(id, '/'); i >= 0 {
		if n, err := strconv.ParseUint(id[i+1:], 10, 64); err == nil {
			ident[0] = byte(xxhash.Sum64String(id[:i]))
			binary.BigEndian.PutUint32(ident[1:], uint32(n))
		}
	}
	return ident
}

// phase is where a task stands, seen together with its slot's offsets.
type phase int8

const (
	pending  phase = iota // nobody has taken it: it can be cancelled, replaced, merged, fired
	inFlight              // its slot's owner has it
	waiting               // between attempts, or a report is awaited
	ended                 // delivered, cancelled, reported, dead
)

func (t *Task) phase(s Slot) phase {
	switch {
	case t.Slot == outOfLine, t.Pos <= s.Done:
		return ended
	case t.Pos <= s.Claimed:
		return inFlight
	case t.State == StateLine:
		return pending
	default:
		return waiting
	}
}

// madeByCancel says that no task of this identity is known, only a cancel with a version that came before it.
func (t *Task) madeByCancel() bool { return t.State == StateTombstone && t.Due == 0 }

const taskColumns = "seq, slot, pos, lane, due, state, attempt, replay, version, created, topic, id, body"

func scanTask(r *sql.Rows, t *Task) error { return scanTaskAnd(r, t) }

// scanTaskAnd also scans columns that follow the task's.
func scanTaskAnd(r *sql.Rows, t *Task, more ...any) error {
	return r.Scan(append([]any{&t.Seq, &t.Slot, &t.Pos, &t.Lane, &t.Due, &t.State, &t.Attempt, &t.Replay, &t.Version, &t.Created, &t.Topic, &t.ID, &t.Body}, more...)...)
}
