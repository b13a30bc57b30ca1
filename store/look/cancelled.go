package look

import (
	"context"
	"database/sql"
	"fmt"
	"maps"
	"slices"

	"github.com/notyet/notyet/store/internal/tables"
	"github.com/notyet/notyet/task"
)

// ListCancels is List for a record that cancels the tasks.
func (r Reader) ListCancels(ctx context.Context, f ListFilter) (many task.Cancels, more *ListPlace, err error) {
	page, err := r.list(ctx, &lister{f: f, also: func(v view, tasks []View) (err error) {
		many, err = v.cancels(ctx, tasks)
		return err
	}})
	return many, page.More, err
}

func (v view) cancels(ctx context.Context, tasks []View) (many task.Cancels, err error) {
	var timers [][16]byte
	of := map[int]bool{}
	for _, t := range tasks {
		if source, _ := task.SplitSeq(t.Seq); task.IsRunSource(source) {
			timers = append(timers, task.TimerOf(t.Topic, t.ID))
		} else {
			of[source] = true
		}
	}
	if many.Stored, err = tables.Offsets(ctx, v.q, slices.Collect(maps.Keys(of))); err != nil {
		return many, err
	}
	set, err := tables.TimerSeqs(ctx, v.q, timers)
	for _, t := range tasks {
		ident, l := task.Ident(t.Topic, t.ID), task.Listed{Seq: t.Seq, Due: t.Due}
		if l.Ident = ident[:]; task.IsRun(t.Seq) {
			l.Timer = set[task.TimerOf(t.Topic, t.ID)]
		}
		many.Tasks = append(many.Tasks, l)
	}
	return many, err
}

// CancelRecord is a record with cancels of many: where it is, and about which tasks.
type CancelRecord struct {
	Topic     string
	Partition int32
	Offset    int64
	Tasks     []task.Listed
}

// Cancelled returns the outcome of a record, once scanners have decided it. Tasks that were
// replaced or fired meanwhile are in neither number.
func (r Reader) Cancelled(ctx context.Context, rec CancelRecord) (cancelled, tooLate int64, decided bool, err error) {
	err = r.h.Reads().QueryRowContext(ctx, "SELECT COALESCE(MAX(next_offset), 0) > ? FROM sources WHERE topic = ? AND part = ? AND retired_at = 0", rec.Offset, []byte(rec.Topic), rec.Partition).Scan(&decided)
	if err == nil && decided {
		err = r.view(ctx, func(v view) (err error) {
			cancelled, tooLate, decided, err = v.outcome(ctx, rec.Tasks)
			return err
		})
	}
	if err != nil {
		return 0, 0, false, fmt.Errorf("looking what became of %d tasks: %w", len(rec.Tasks), err)
	}
	return cancelled, tooLate, decided, nil
}

// outcome counts listed tasks. decided is false if one is pending: the database has forgotten the
// record, or refuses it.
func (v view) outcome(ctx context.Context, listed []task.Listed) (cancelled, tooLate int64, decided bool, err error) {
	due := make(map[int64]int64, len(listed))
	seqs := make([]int64, 0, len(listed))
	for _, l := range listed {
		due[l.Seq], seqs = l.Due, append(seqs, l.Seq)
	}
	decided = true
	err = tables.Chunks(seqs, func(part []int64) error {
		rows, err := tables.Fetch(ctx, v.q, func(r *sql.Rows, t *task.Task) error { return r.Scan(&t.Seq, &t.Due, &t.Slot, &t.Pos, &t.State) },
			"SELECT seq, due, slot, pos, state FROM tasks WHERE seq IN ("+tables.Ints(part)+")")
		for _, t := range rows {
			slot := v.bySlot[t.Slot]
			switch {
			case t.Due != due[t.Seq]:
			case t.State.Cancelled():
				cancelled++
			case t.Phase(slot.Claimed, slot.Done) == task.Pending:
				decided = false
			default:
				tooLate++
			}
		}
		return err
	})
	return cancelled, tooLate, decided, err
}
