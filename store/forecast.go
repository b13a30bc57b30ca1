package store

import (
	"cmp"
	"context"
	"database/sql"
	"fmt"
	stdslices "slices"

	"github.com/notyet/notyet/task"
)

// ForecastFilter says which tasks to count, and into which steps.
type ForecastFilter struct {
	Topic    string // "": all
	From, To int64  // Unix ms, From included, To not
	Step     int64  // ms, at least 1
}

// ForecastStep is how many tasks stand in [At, At + Step).
type ForecastStep struct {
	At    int64
	Count int64
}

// Forecast counts the tasks that are still to come by their place in the line: the due time, the
// time of the next attempt, or the end of the wait for a report. It leaves out steps without tasks.
// It reads entries of two indexes only, of one slot or one lane at a time. So each statement is
// short, and ctx can end it between two.
func (s *Store) Forecast(ctx context.Context, f ForecastFilter) ([]ForecastStep, error) {
	counts, err := s.forecast(ctx, f)
	if err != nil {
		return nil, fmt.Errorf("counting what falls due: %w", err)
	}
	out := make([]ForecastStep, 0, len(counts))
	for at, n := range counts {
		out = append(out, ForecastStep{at, n})
	}
	stdslices.SortFunc(out, func(a, b ForecastStep) int { return cmp.Compare(a.At, b.At) })
	return out, nil
}

func (s *Store) forecast(ctx context.Context, f ForecastFilter) (map[int64]int64, error) {
	all, err := s.Slots(ctx)
	if err != nil {
		return nil, err
	}
	c := counter{store: s, f: f, counts: map[int64]int64{}}
	if f.Topic == "" {
		for _, slot := range all {
			if err := c.count(ctx, "line", "slot = ?", []any{slot.Slot}, max(f.From, slot.Done+1), f.To); err != nil {
				return nil, err
			}
		}
		return c.counts, nil
	}
	lanes := make([]any, 0, task.Classes)
	for class := range task.Classes {
		lanes = append(lanes, int64(task.LaneOf(f.Topic, task.Class(class))))
	}
	// A lane also holds what has ended, in places up to now: tasks that were cancelled, and those
	// before done. Beyond the place that every slot has claimed or passed, and beyond now, all of
	// it is to come. Before it, the slots' lines tell them apart.
	now, err := s.Time(ctx)
	if err != nil {
		return nil, err
	}
	beyond := now.UnixMilli() + 1
	for _, slot := range all {
		beyond = max(beyond, slot.Claimed+1, slot.Done+1)
	}
	for _, slot := range all {
		where := "slot = ? AND lane IN (" + marks(len(lanes)) + ")"
		if err := c.count(ctx, "line", where, append([]any{slot.Slot}, lanes...), max(f.From, slot.Done+1), min(f.To, beyond)); err != nil {
			return nil, err
		}
	}
	for _, lane := range lanes {
		if err := c.count(ctx, "lane", "lane = ?", []any{lane}, max(f.From, beyond), f.To); err != nil {
			return nil, err
		}
	}
	return c.counts, nil
}

type counter struct {
	store  *Store
	f      ForecastFilter
	counts map[int64]int64 // by the beginning of the step
}

// count adds what stands in [from, to) of a run of an index.
func (c *counter) count(ctx context.Context, index, where string, values []any, from, to int64) error {
	if from >= to {
		return ctx.Err()
	}
	type row struct{ rest, n int64 }
	// Each index holds all that is asked about. Left to choose, a server may take the other one and look at every row.
	div, table := "DIV", "tasks FORCE INDEX ("+index+")"
	if c.store.sqlite {
		div, table = "/", "tasks INDEXED BY "+map[string]string{"line": "line", "lane": "tasks_lane"}[index]
	}
	// The hint ends a statement that nobody waits for any more. MariaDB ignores it.
	query := "SELECT /*+ MAX_EXECUTION_TIME(5000) */ (pos - ?) " + div + " ? AS step, COUNT(*) FROM " + table + " WHERE " + where + " AND pos >= ? AND pos < ? GROUP BY step"
	a := append(append([]any{c.f.From, c.f.Step}, values...), from, to)
	rows, err := fetch(ctx, c.store.db, func(r *sql.Rows, v *row) error { return r.Scan(&v.rest, &v.n) }, query, a...)
	if err != nil {
		return err
	}
	for _, r := range rows {
		c.counts[c.f.From+r.rest*c.f.Step] += r.n
	}
	return nil
}
