package intake

import (
	"context"
	"fmt"

	"github.com/notyet/notyet/internal/wrap"
	"github.com/notyet/notyet/store/internal/tables"
	"github.com/notyet/notyet/task"
)

// SettleProven moves tasks with a proof of sending to where their deliveries had taken them. First
// apply every request of the intake: an older one would be too late afterwards.
func (in Intake) SettleProven(ctx context.Context, tasks []task.Task, now int64) error {
	var b Batch
	for _, t := range tasks {
		b.Resolve = append(b.Resolve, task.Ident(t.Topic, t.ID))
	}
	_, err := in.apply(ctx, b, func() int64 { return now }, true)
	return wrap.Err(err, "settling %d tasks that were sent", len(tasks))
}

// Unsent reads, of the given seqs, the tasks proven to have been sent, but still to be sent
// according to the tables. One statement is for all seqs, so pass some hundreds at a time.
func (in Intake) Unsent(ctx context.Context, seqs []int64, e Evidence) ([]task.Task, error) {
	rows, err := tables.Fetch(ctx, in.h.Reads(), tables.ScanTask, "SELECT "+tables.TaskColumns+" FROM tasks WHERE seq IN ("+tables.Marks(len(seqs))+") AND pos > (SELECT done FROM slots s WHERE s.slot = tasks.slot)", tables.Args(seqs)...)
	if err != nil {
		return nil, fmt.Errorf("looking for tasks that were sent: %w", err)
	}
	out := rows[:0]
	for _, t := range rows {
		if _, ok := proven(e, &t); ok {
			out = append(out, t)
		}
	}
	return out, nil
}
