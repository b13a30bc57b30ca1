package look

import (
	"bytes"
	"context"
	"database/sql"
	"fmt"

	"github.com/notyet/notyet/schemas"
	"github.com/notyet/notyet/store/internal/tables"
	"github.com/notyet/notyet/task"
)

// Waiting is a request or a report that is decided later.
type Waiting struct {
	Op      string // of the request; "report"
	Request string // its place in the intake: topic/partition/offset
	For     string // what it waits for
}

// waiting reads a task's waiting changes. The beginning of a stored request names its op.
func (r Reader) waiting(ctx context.Context, t *task.Task, ph task.Phase) (out []Waiting, n int, err error) {
	key := task.Ident(t.Topic, t.ID)
	if err := r.h.Reads().QueryRowContext(ctx, "SELECT COUNT(*) FROM waiting WHERE ident = ?", key[:]).Scan(&n); err != nil {
		return nil, 0, fmt.Errorf("counting what waits for the task: %w", err)
	}
	if n == 0 {
		return nil, 0, nil
	}
	type row struct {
		seq    int64
		report bool
		begin  []byte
		topic  sql.NullString
		part   sql.NullInt32
	}
	rows, err := tables.Fetch(ctx, r.h.Reads(), func(r *sql.Rows, v *row) error { return r.Scan(&v.seq, &v.report, &v.begin, &v.topic, &v.part) },
		"SELECT w.seq, w.report, SUBSTR(w.request, 1, 100), s.topic, s.part FROM waiting w LEFT JOIN sources s ON s.src = w.seq >> 48 WHERE w.ident = ? ORDER BY w.report, w.arrived LIMIT ?", key[:], historyOf)
	if err != nil {
		return nil, 0, fmt.Errorf("reading what waits for the task: %w", err)
	}
	for i, v := range rows {
		w := Waiting{Op: "report", For: "the outcome of its delivery"}
		if !v.report {
			_, after, _ := bytes.Cut(v.begin, []byte(`"Op":`))
			var op schemas.Op
			_, _ = fmt.Sscan(string(after), &op) // up to the comma
			w.Op, w.For = op.String(), t.Awaits(ph, op)
			if i > 0 {
				w.For = "the request before it"
			}
		}
		if _, offset := task.SplitSeq(v.seq); v.topic.Valid {
			w.Request = schemas.DefaultID(v.topic.String, v.part.Int32, offset)
		}
		out = append(out, w)
	}
	return out, n, nil
}
