// Package task has the rules about tasks. A task and a change go in; the task's fate comes out.
//
// Nothing here reads or writes anything. The store turns the rules into SQL, and its transactions
// say in which order they take effect. The dispatcher and the programs of recovery use the same
// rules, so a task means the same everywhere.
package task

import (
	"bytes"
	"crypto/sha256"
	"encoding/binary"
	"strconv"
	"strings"

	"github.com/cespare/xxhash/v2"

	"github.com/notyet/notyet/schemas"
)

// State is a task row's own part of the state. Whether a row in the line is pending, in flight or
// delivered follows from its place between its slot's offsets: a simple delivery writes nothing.
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
	StateStopped   State = 14 // after a delivery, by a stop without a version
	StateHalted    State = 15 // the same by a stop with a version: a schedule of that version or lower is stale
)

// Cancelled tells whether a task ended by a cancel, or was cancelled before any schedule.
func (s State) Cancelled() bool { return s == StateCancelled || s == StateTombstone }

// Stopped tells whether a stop ended a task that was delivered before.
func (s State) Stopped() bool { return s == StateStopped || s == StateHalted }

// versioned: the ending request had a version, which also bars schedules of that version.
func (s State) versioned() bool { return s == StateTombstone || s == StateHalted }

// OutOfLine is the slot of a task that has ended out of the line: cancelled, reported, dead. Its
// place is the time of the end.
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
	Snoozed int   // how many of them their reports have snoozed: see report
	Replay  int   // times replayed from the dead letters
	Version int64 // -1: none
	Created int64 // Unix ms of the request that opened the task
	Topic   string
	ID      string
	// Idle: a retry has nothing under way. No producer has it, and no earlier owner may have sent
	// it. The row's column is the place of an idle retry. So an older program, which moves a task
	// and leaves the column alone, takes Idle back.
	Idle bool
	Body []byte // schemas.EncodeBody
	// Where the intake or a history has read them: the latest report that could not be read, and
	// the latest attempts that failed, without the one of a dead letter.
	Unread   Note
	Failures []Note
}

// Counted is how many of the deliveries count as attempts.
func (t *Task) Counted() int { return t.Attempt - t.Snoozed }

// MadeByCancel: of this identity, only an early cancel with a version is known, and no task.
func (t *Task) MadeByCancel() bool { return t.State == StateTombstone && t.Due == 0 }

// A task's seq names its intake record: the source and the offset there. The offset has the low 48
// bits. Sources are at most 1<<15 - 1, so a seq is never negative.
const offsetBits = 48

// Seq returns the seq of the record at an offset of a source.
func Seq(source int, offset int64) int64 { return int64(source)<<offsetBits | offset }

// SplitSeq is the inverse of Seq.
func SplitSeq(seq int64) (source int, offset int64) {
	return int(seq >> offsetBits), seq & (1<<offsetBits - 1)
}

// replayShift leaves room for sixteen million attempts between two replays of a task.
const replayShift = 24

// SendNumber numbers an attempt (from 1) among all attempts of a task. A replay counts its attempts
// from 1 again, and none may be taken for an earlier one.
func SendNumber(replay, attempt int) int32 { return int32(replay)<<replayShift + int32(attempt) }

// SplitSendNumber is the inverse of SendNumber.
func SplitSendNumber(number int32) (replay, attempt int) {
	return int(number >> replayShift), int(number & (1<<replayShift - 1))
}

// Ident returns the identity of a task, (topic, id), in 16 bytes: short enough for a unique index,
// and too long to collide by chance. A deliberate search may find a collision: where a row is found
// by its identity, topic and id are compared. Ids that end in a slash and a number, like default
// ids, are ordered by the number. So tasks that arrive together are written to few pages of the
// index; hashes alone would scatter them over all of it.
func Ident(topic, id string) [16]byte {
	b := make([]byte, 0, 512)
	b = append(b, topic...)
	b = append(b, 0) // never part of a topic name
	b = append(b, id...)
	if Digested != nil {
		b = Digested(bytes.Clone(b)) // b itself stays on the stack
	}
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

// Digested replaces what Ident hashes, in tests with colliding names. nil: nothing.
var Digested func(b []byte) []byte

// Published tells whether a task with this setting has the state published on the results topic.
func Published(e schemas.Events, state schemas.State) bool {
	switch {
	case state == schemas.StateRejected, e == schemas.EventsAll:
		return true
	case e == schemas.EventsFinal:
		return state.Final()
	}
	return false
}

// RunSource is the source of the seqs of runs in the first database: they have no intake record.
// Each further database has the source behind the one before, up to LastRunSource. So a run has its
// seq in every database to which its target moves.
const (
	RunSource     = 3
	LastRunSource = 15
)

// IsRun tells whether a seq is a run's.
func IsRun(seq int64) bool {
	source, _ := SplitSeq(seq)
	return IsRunSource(source)
}

// IsRunSource tells whether a source is one of runs.
func IsRunSource(source int) bool { return RunSource <= source && source <= LastRunSource }

// Change is one intake record: a request, a report, a rejected record, or cancels of many.
type Change struct {
	Seq      int64 // see Seq
	Request  *schemas.Request
	Report   *schemas.Report
	Unread   string // why the report, which has a topic and an id alone, cannot be read
	Rejected *DeadLetter
	Cancels  *Cancels `json:"-"`
	// Beyond is the quota of its intake without room for a request, which may open no task. Beyond
	// QuotaBytes, it may make none larger. Beyond QuotaUnknownTargets, it may open no timer.
	Beyond string `json:",omitempty"`
	// Unordered: the intake has requests elsewhere than Kafka's partitioner puts their keys.
	Unordered bool `json:",omitempty"`
	// NoLetter: a rejection makes no dead letter, because its intake has rejected too many.
	NoLetter bool `json:",omitempty"`
	// Again: a database that was set back has forgotten this request, and what came of it.
	Again bool `json:",omitempty"`
	// CancelledBy is the seq of cancels of many that name the task of a waiting request.
	CancelledBy int64 `json:",omitempty"`
}

// Quotas, as the configuration names them: bytes of pending tasks, and missing target topics.
const (
	QuotaBytes          = "pending-bytes"
	QuotaUnknownTargets = "unknown-targets"
)

// Verdict is the result of a change to the task of its identity.
type Verdict struct {
	Next        *Task         // the task afterwards: the pointer that came in when nothing changed
	Event       schemas.Event // State "": there is no event
	Dead        *DeadLetter
	Wait        bool // the task is being delivered: decide again when its outcome is known
	Cost        int  // of merging: see mergeCost
	Unread      Note
	ToldTooLate bool // the caller learns that it is too late: the task must not become pending again
}
