package intake

import (
	"context"
	"database/sql"
	"fmt"
	"slices"

	"github.com/notyet/notyet/internal/wrap"
	"github.com/notyet/notyet/store/internal/handle"
	"github.com/notyet/notyet/store/internal/tables"
	"github.com/notyet/notyet/task"
	"github.com/notyet/notyet/timer"
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

// SentRun names a run of a timer that was sent, or was about to be.
type SentRun struct {
	Seq       int64
	Topic, ID string
}

// RestoreRuns stores runs made after the backup again, under their former numbers. So the known
// deliveries match, and no run is made a second time under another number. same tells whether a
// task has the sent content. A run is left out if it exists, if its timer does not make it any
// more, or if the content differs. n is how many were stored. The call may be repeated.
func (in Intake) RestoreRuns(ctx context.Context, runs []SentRun, now int64, same func(*task.Task) bool) (n int, err error) {
	if len(runs) > 0 { // a database of before the first run does not know their source
		if err := in.h.Transact(ctx, func(tx *sql.Tx) error { return ensureRunSource(ctx, tx) }); err != nil {
			return 0, fmt.Errorf("making the source of runs: %w", err)
		}
	}
	for part := range slices.Chunk(runs, makeTimers) {
		added := 0
		err := in.h.Transact(ctx, func(tx *sql.Tx) error {
			m := maker{work: work{intake: in, tx: tx, now: now}}
			err := m.restore(ctx, part, same)
			added = len(m.applied.Added)
			return err
		})
		if err != nil {
			return n, fmt.Errorf("storing %d runs of timers again: %w", len(part), err)
		}
		n += added
	}
	return n, nil
}

func (m *maker) restore(ctx context.Context, runs []SentRun, same func(*task.Task) bool) error {
	timers, err := m.timersOf(ctx, runs)
	if err != nil {
		return err
	}
	slots, seen := handle.SlotSet{}, map[[16]byte]bool{}
	for _, r := range runs {
		key, run, ok := timerOf(r)
		t := timers[key]
		if !ok || t == nil || t.Topic != r.Topic || timer.RunID(t.ID, run) != r.ID || seen[task.Ident(r.Topic, r.ID)] {
			continue
		}
		again := t.RunAgain(run, m.now)
		if again == nil {
			continue
		}
		again.Seq = r.Seq
		if same(again) {
			slots.Add(again.Slot)
			seen[task.Ident(r.Topic, r.ID)] = true
			m.fresh = append(m.fresh, again)
		}
	}
	if err := m.dropExisting(ctx); err != nil {
		return err
	}
	if m.slots, err = m.intake.h.LockSlots(ctx, m.tx, slots, handle.LockShared); err != nil {
		return err
	}
	m.late, m.fresh = m.fresh, nil
	return m.placeFresh(ctx)
}

func (m *maker) timersOf(ctx context.Context, runs []SentRun) (map[[16]byte]*task.Timer, error) {
	timers := map[[16]byte]*task.Timer{}
	var keys []any
	for _, r := range runs {
		if key, _, ok := timerOf(r); ok {
			keys = append(keys, key[:])
		}
	}
	slices.SortFunc(keys, compareKeys)
	rows, err := tables.Fetch(ctx, m.tx, tables.ScanTimer, "SELECT "+tables.TimerColumns+" FROM timers WHERE ident IN ("+tables.Marks(len(keys))+")"+m.intake.h.Locking(handle.LockExclusive), keys...)
	if err != nil {
		return nil, fmt.Errorf("reading timers: %w", err)
	}
	for i := range rows {
		timers[task.Ident(rows[i].Topic, rows[i].ID)] = &rows[i]
	}
	return timers, nil
}

// timerOf returns the identity of a run's timer, and the instant of the run.
func timerOf(r SentRun) (key [16]byte, run int64, ok bool) {
	id, run, ok := timer.SplitRunID(r.ID)
	if ok {
		key = task.Ident(r.Topic, id)
	}
	return key, run, ok
}
