package intake

import (
	"context"
	"database/sql"
	"fmt"
	"maps"
	"slices"

	"github.com/notyet/notyet/store/internal/handle"
	"github.com/notyet/notyet/store/internal/tables"
	"github.com/notyet/notyet/store/line"
	"github.com/notyet/notyet/task"
)

// A report on a task in flight waits in the table of waiting requests, unless it ends the task at
// once: see decideOne. A task is in flight before the transition that begins its wait for a report,
// and again before the one that ends the wait. Neither transition may overlook such a report. Both
// writers lock the task's row: either the report is stored before the transition, which then
// decides it, or the report's writer comes later and finds the task after the transition.

// Line returns the view of the owners of slots.
func (in Intake) Line() line.Line { return line.New(in.h.Ref(), in.decideReports) }

// decideReports decides the waiting reports on the tasks of transitions, and deletes the reports. A
// task with reports goes where they put it, without a stop where it would have waited. Too many
// reports for a transaction stay in their table; but no wait ends while a report may be left.
func (in Intake) decideReports(ctx context.Context, tx *sql.Tx, transitions []line.Transition, rows map[int64]line.Row, slots map[int]handle.Slot, now func() int64) (line.Reported, error) {
	out := line.Reported{Transitions: transitions}
	sure := maps.Clone(slots) // the owner itself says what is claimed
	for n, slot := range sure {
		slot.Unsure = false
		sure[n] = slot
	}
	w := work{intake: in, tx: tx, clock: now, slots: sure, mode: mode{several: len(transitions) > 1}}
	var list []*identity
	at := map[*identity]int{}
	for i, e := range transitions {
		if row := rows[e.Seq]; e.Waits(row.Task) && e.Applies(row.Task, slots[e.Slot]) {
			id := &identity{key: row.Ident}
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
	if err := w.readKnown(ctx, list, "body"); err != nil {
		return out, err
	}
	if err := w.knowSources(ctx, list); err != nil {
		return out, err
	}
	w.now = now()
	out.Transitions, out.Changed = slices.Clone(transitions), map[int64]line.Transition{}
	for _, id := range list {
		e := &out.Transitions[at[id]]
		e.Stand(id.before, slots[e.Slot].Claimed)
		w.decideDue(id)
		if id.now == id.before {
			continue
		}
		if e.EndsWait { // the task does not end as its owner says
			e.Events = nil
		}
		e.State, e.Pos, e.Attempt, e.Lane, e.Dead = id.now.State, id.now.Pos, id.now.Attempt, e.Lane.In(id.now.Class), nil
		e.Idle, e.Snoozed, e.Failure = id.now.Idle, id.now.Snoozed, task.Note{}
		if n := len(id.now.Failures); n > 0 {
			e.Failure = id.now.Failures[n-1]
		}
		for _, d := range w.dead {
			if d.Seq == e.Seq {
				e.Dead = d
			}
		}
		w.dead = nil
		out.Changed[e.Seq] = *e
	}
	for _, box := range slices.AppendSeq(w.full, maps.Values(w.events)) {
		out.Events = append(out.Events, box.Events...)
	}
	return out, w.writeWaiting(ctx, list)
}
