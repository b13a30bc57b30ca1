package tables

import (
	"database/sql"

	"github.com/notyet/notyet/schemas"
	"github.com/notyet/notyet/task"
)

// TaskColumns are those of tasks that ScanTask reads; TaskHead are those before the body.
const (
	TaskHead    = "seq, slot, pos, lane, due, state, attempt, replay, version, created, idle = pos, snoozed, topic, id, "
	TaskColumns = TaskHead + "body"
)

// TaskNotes are the columns behind the body that ScanTaskNotes reads.
const TaskNotes = ", unread, failures"

// ScanTaskNotes reads TaskColumns, TaskNotes and further columns.
func ScanTaskNotes(r *sql.Rows, t *task.Task, more ...any) error {
	var unread, failures []byte
	err := ScanTaskAnd(r, t, append([]any{&unread, &failures}, more...)...)
	for _, n := range task.DecodeNotes(unread) {
		t.Unread = n
	}
	t.Failures = task.DecodeNotes(failures)
	return err
}

// ScanTask reads a task.
func ScanTask(r *sql.Rows, t *task.Task) error { return ScanTaskAnd(r, t) }

// ScanTaskAnd also scans further columns.
func ScanTaskAnd(r *sql.Rows, t *task.Task, more ...any) error {
	var lane task.Lane
	err := r.Scan(append([]any{&t.Seq, &t.Slot, &t.Pos, &lane, &t.Due, &t.State, &t.Attempt, &t.Replay, &t.Version, &t.Created, &t.Idle, &t.Snoozed, &t.Topic, &t.ID, &t.Body}, more...)...)
	t.Class = lane.Class()
	return err
}

// DeadColumns are those of dead letters that ScanDead reads.
const DeadColumns = "id, seq, kind, topic, task_id, due, attempt, replay, reason, died_at, replayed_at, replayed_by, body"

// ScanDead reads a dead letter.
func ScanDead(r *sql.Rows, d *task.DeadLetter) error {
	return r.Scan(&d.ID, &d.Seq, &d.Kind, &d.Topic, &d.TaskID, &d.Due, &d.Attempt, &d.Replay, &d.Reason, &d.DiedAt, &d.ReplayedAt, &d.ReplayedBy, &d.Body)
}

// CutText makes s fit into a column of n bytes.
func CutText(s string, n int) []byte { return []byte(schemas.CutUTF8(s, n)) }

// NonNil is b, for a column that is never NULL.
func NonNil(b []byte) []byte {
	if b == nil {
		return []byte{}
	}
	return b
}
