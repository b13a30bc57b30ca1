package tables

import (
	"database/sql"

	"github.com/notyet/notyet/task"
)

// TaskColumns are those of tasks that ScanTask reads.
const TaskColumns = "seq, slot, pos, lane, due, state, attempt, replay, version, created, topic, id, body"

// ScanTask reads a task.
func ScanTask(r *sql.Rows, t *task.Task) error { return ScanTaskAnd(r, t) }

// ScanTaskAnd also scans columns that follow the task's.
func ScanTaskAnd(r *sql.Rows, t *task.Task, more ...any) error {
	var lane task.Lane
	err := r.Scan(append([]any{&t.Seq, &t.Slot, &t.Pos, &lane, &t.Due, &t.State, &t.Attempt, &t.Replay, &t.Version, &t.Created, &t.Topic, &t.ID, &t.Body}, more...)...)
	t.Class = lane.Class()
	return err
}
