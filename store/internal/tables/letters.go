package tables

import (
	"database/sql"

	"github.com/notyet/notyet/schemas"
	"github.com/notyet/notyet/task"
)

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
