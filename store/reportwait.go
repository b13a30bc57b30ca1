package store

import (
	"context"
	"database/sql"
	"fmt"
	"slices"

	"github.com/notyet/notyet/schemas"
	"github.com/notyet/notyet/task"
)

// When the wait for a report ends, the task is in flight, and a report that arrives then waits in
// its table. The transition that ends the wait must not ignore such a report. Both writers hold the
// lock on the task's row: either the report is stored before the transition, or its writer comes
// later and finds the task where the transition has put it.

// reported returns, by seq, the tasks whose wait for a report a transition is to end although a
// report that ends it is stored.
func (s *Store) reported(ctx context.Context, tx *sql.Tx, transitions []Transition, rows map[int64]task.Task) (map[int64]task.Task, error) {
	ends := make([]Transition, 0, len(transitions))
	for _, e := range transitions {
		if e.Again > 0 && rows[e.Seq].State == task.StateReport {
			ends = append(ends, e)
		}
	}
	if len(ends) == 0 {
		return nil, nil
	}
	found := map[int64]task.Task{}
	err := chunks(ends, func(part []Transition) error {
		// A task may have a hundred reports of many kilobytes: none of them is kept.
		_, err := fetch(ctx, tx, func(r *sql.Rows, _ *struct{}) error {
			var t task.Task
			var data []byte
			if err := r.Scan(&t.Seq, &t.Topic, &t.ID, &t.Attempt, &data); err != nil {
				return err
			}
			change, err := decodeChange(data)
			if err == nil && change.Report != nil && task.EndsWait(t.Attempt, *change.Report) {
				found[t.Seq] = t
			}
			return err
		}, "SELECT t.seq, t.topic, t.id, t.attempt, w.request FROM tasks t JOIN waiting w ON w.ident = t.ident WHERE w.report = 1 AND t.seq IN ("+marks(len(part))+")", seqsOf(part)...)
		return err
	})
	if err != nil {
		return nil, fmt.Errorf("looking for reports on %d tasks: %w", len(ends), err)
	}
	return found, nil
}

// waitOn changes the transitions of reported tasks: these wait on, until their report is applied.
// It drops the events about them. It does not change its arguments, because the transaction may run
// again.
func waitOn(transitions []Transition, events []schemas.Event, reported map[int64]task.Task) ([]Transition, []schemas.Event) {
	if len(reported) == 0 {
		return transitions, events
	}
	type name struct{ topic, id string }
	named := make(map[name]bool, len(reported))
	transitions = slices.Clone(transitions)
	for i, e := range transitions {
		if t, ok := reported[e.Seq]; ok {
			named[name{t.Topic, t.ID}] = true
			transitions[i].State, transitions[i].Pos, transitions[i].Attempt, transitions[i].Dead = task.StateReport, e.Again, t.Attempt, nil
		}
	}
	told := slices.DeleteFunc(slices.Clone(events), func(e schemas.Event) bool { return named[name{e.Topic, e.ID}] })
	return transitions, told
}
