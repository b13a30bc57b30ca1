package intake

import (
	"context"
	"fmt"

	"github.com/notyet/notyet/store/internal/tables"
	"github.com/notyet/notyet/task"
)

// Evidence returns proofs, after a database was restored from a backup. It must compare more of the
// task than its seq: two sources that were made again after the backup may have exchanged their
// numbers. It is asked inside transactions, so it must answer at once.
type Evidence interface {
	Of(t *task.Task) (task.Proof, bool)
}

// SetEvidence has the evidence take part in what every Intake of the store decides from now on: a task
// that is proven to have been sent ends, or waits for its report, before a request that came after that.
// For tasks that no request is about, see SettleProven. The store must not be used by others at the same time.
func (in Intake) SetEvidence(e Evidence) { in.evidence = e }

// proven returns the proof about a task, if it goes beyond what the row knows.
func proven(e Evidence, t *task.Task) (task.Proof, bool) {
	p, ok := e.Of(t)
	return p, ok && p.Exceeds(t)
}

// applyEvidence brings a task to where its deliveries had taken it before the change c came (nil: by
// now).
func (w *work) applyEvidence(id *identity, c *task.Change) {
	if w.intake.evidence == nil || id.now == nil || w.phase(id) == task.Ended {
		return
	}
	p, ok := proven(w.intake.evidence, id.now)
	if !ok || c != nil && c.Request != nil && p.Follows(c.Request) {
		return
	}
	v := task.Prove(id.now, p, w.now)
	id.now = v.Next
	if v.Dead != nil {
		w.dead = append(w.dead, v.Dead)
	}
	if v.Event.State != "" {
		w.proven = append(w.proven, v.Event)
	}
}

// SettleProven brings those of the tasks that are proven to have been sent to where their
// deliveries had taken them. First apply every request that the intake holds: an older one that
// came after this would be judged as too late.
func (in Intake) SettleProven(ctx context.Context, tasks []task.Task, now int64) error {
	var b Batch
	for _, t := range tasks {
		b.Resolve = append(b.Resolve, task.Ident(t.Topic, t.ID))
	}
	if _, err := in.apply(ctx, b, func() int64 { return now }, true); err != nil {
		return fmt.Errorf("settling %d tasks that were sent: %w", len(tasks), err)
	}
	return nil
}

// Unsent reads, of the given seqs, the tasks that are proven to have been sent, but that the tables
// show as still to be sent. It uses one statement for all seqs, so pass some hundreds at a time.
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
