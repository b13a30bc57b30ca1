package look

import (
	"context"
	"database/sql"

	"github.com/notyet/notyet/internal/wrap"
	"github.com/notyet/notyet/store/internal/handle"
	"github.com/notyet/notyet/store/internal/tables"
	"github.com/notyet/notyet/task"
)

// Run is what the task of a timer's run says.
type Run struct {
	View
	Place   int64  // in line, or when it ended out of the line, Unix ms
	Dead    string // the kind of its dead letter; "": it has none
	Dropped bool   // it was never sent, and has no dead letter
}

// GetRuns reads the tasks of a topic with these ids, without their bodies.
func (r Reader) GetRuns(ctx context.Context, topic string, ids []string) (map[string]Run, error) {
	type seen struct {
		task task.Task
		slot handle.Slot
		kind sql.NullString
	}
	out := make(map[string]Run, len(ids))
	rows, err := tables.FetchIn(ctx, r.h.Reads(), func(r *sql.Rows, v *seen) error {
		return tables.ScanTaskAnd(r, &v.task, &v.slot.Claimed, &v.slot.Done, &v.kind)
	},
		"SELECT "+tables.TaskHead+"'', COALESCE((SELECT claimed FROM slots s WHERE s.slot = tasks.slot), 0), COALESCE((SELECT done FROM slots s WHERE s.slot = tasks.slot), 0),"+
			" (SELECT d.kind FROM dead_letters d WHERE d.seq = tasks.seq ORDER BY d.replay DESC LIMIT 1) FROM tasks WHERE ident",
		tables.Idents(ids, func(id string) [16]byte { return task.Ident(topic, id) }), "")
	for _, v := range rows {
		out[v.task.ID] = Run{View: viewOf(&v.task, v.slot), Place: v.task.Pos, Dead: v.kind.String, Dropped: v.task.WasDropped() && !v.kind.Valid}
	}
	return out, wrap.Err(err, "reading %d runs", len(ids))
}
