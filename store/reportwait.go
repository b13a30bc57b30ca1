package store

import (
	"context"
	"database/sql"
	"fmt"
	"maps"
	"slices"

	"github.com/notyet/notyet/schemas"
	"github.com/notyet/notyet/store/internal/tables"
	"github.com/notyet/notyet/task"
)

// A report on a task in flight waits in the table of waiting requests, unless it ends the task at once: see decideOne. A
// task is in flight before the transition that begins its wait for a report, and again before the one that ends the wait.
// Neither transition may overlook such a report. Both writers hold the lock on the task's row: either the report is stored
// before the transition, which then decides it, or the report's writer comes later and finds the task where the transition
// has put it.

// withReports is what reports make of transitions.
type withReports struct {
	transitions []Transition // all, those that reports have changed as they are then
	changed     map[int64]Transition
	events      []schemas.Event // of the reports
}

// decideReports decides the reports that wait for the tasks of transitions, and deletes those reports. A
// task with reports goes where they put it, without a stop at the place where it would have waited.
// Reports that do not fit into a transaction stay in their table; but no wait is ended while a report
// may be left.
func (s *Store) decideReports(ctx context.Context, tx *sql.Tx, transitions []Transition, rows map[int64]lockedRow, slots map[int]Slot, now func() int64) (withReports, error) {
	out := withReports{transitions: transitions}
	sure := maps.Clone(slots) // the owner itself says what is claimed
	for n, slot := range sure {
		slot.Unsure = false
		sure[n] = slot
	}
	w := work{store: s, tx: tx, clock: now, slots: sure, mode: mode{several: len(transitions) > 1}}
	var list []*identity
	at := map[*identity]int{}
	for i, e := range transitions {
		if row := rows[e.Seq]; e.waits(row.Task) && e.applies(row.Task, slots[e.Slot]) {
			id := &identity{key: row.ident}
			at[id] = i
			list = append(list, id)
		}
	}
	slices.SortFunc(list, inOrder)
	left := piece{rows: waitingReports, bytes: waitingBytes}
	for part := range slices.Chunk(list, tables.MaxRows) {
		if err := w.takeWaiting(ctx, part, " AND report = 1", &left); err != nil {
			return out, fmt.Errorf("looking for reports on %d tasks: %w", len(part), err)
		}
	}
	ends := slices.ContainsFunc(list, func(id *identity) bool { return transitions[at[id]].EndsWait })
	list = slices.DeleteFunc(list, func(id *identity) bool { return len(id.queue.due) == 0 })
	if ends && left.empty() && w.several {
		return out, errKnown
	}
	if len(list) == 0 {
		return out, nil
	}
	if err := w.readKnown(ctx, list); err != nil {
		return out, err
	}
	if err := w.knowSources(ctx, list); err != nil {
		return out, err
	}
	w.now = now()
	out.transitions, out.changed = slices.Clone(transitions), map[int64]Transition{}
	for _, id := range list {
		e := &out.transitions[at[id]]
		e.stand(id.before, slots[e.Slot].Claimed)
		w.decideDue(id)
		if id.now == id.before {
			continue
		}
		if e.EndsWait { // the task does not end as its owner says
			e.Events = nil
		}
		e.State, e.Pos, e.Attempt, e.Lane, e.Dead = id.now.State, id.now.Pos, id.now.Attempt, e.Lane.In(id.now.Class), nil
		for _, d := range w.dead {
			if d.Seq == e.Seq {
				e.Dead = d
			}
		}
		w.dead = nil
		out.changed[e.Seq] = *e
	}
	for _, box := range slices.AppendSeq(w.full, maps.Values(w.events)) {
		out.events = append(out.events, box.Events...)
	}
	return out, w.writeWaiting(ctx, list)
}

// waits tells whether the transition begins or ends a wait for a report.
func (e Transition) waits(row task.Task) bool {
	return e.State == task.StateReport && !e.Recall || e.EndsWait && row.State == task.StateReport
}

// stand makes of a task's row what its reports are decided on: the task as it waits.
func (e Transition) stand(row *task.Task, claimed int64) {
	if !e.EndsWait {
		row.State, row.Attempt, row.Class = e.State, max(e.Attempt, row.Attempt), e.Lane.Class()
	}
	row.Pos = max(e.Pos, claimed+1)
}
