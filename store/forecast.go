package store

import (
	"cmp"
	"context"
	"database/sql"
	"fmt"
	stdslices "slices"
	"strings"
	"time"

	"github.com/notyet/notyet/task"
)

// ForecastFilter says which tasks to count, and into which steps.
type ForecastFilter struct {
	Topic    string // "": all
	From, To int64  // Unix ms, From included, To not
	Step     int64  // ms, at least 1
	// Within is for how long to count. 0: until all is counted.
	Within time.Duration
}

// ForecastStep is how many tasks stand in [At, At + Step).
type ForecastStep struct {
	At    int64
	Count int64
}

// Forecast counts the tasks that are still to come by their place in the line: the due time, the
// time of the next attempt, or the end of the wait for a report. It leaves out steps without tasks.
// It reads entries of two indexes only, in the order of time, and at least one step. If Within is
// over before all is counted, next is where to go on; otherwise it is 0.
func (s *Store) Forecast(ctx context.Context, f ForecastFilter) (steps []ForecastStep, next int64, err error) {
	c := counter{store: s, f: f, counts: map[int64]int64{}}
	if next, err = c.run(ctx); err != nil {
		return nil, 0, fmt.Errorf("counting what falls due: %w", err)
	}
	for at, n := range c.counts {
		steps = append(steps, ForecastStep{at, n})
	}
	stdslices.SortFunc(steps, func(a, b ForecastStep) int { return cmp.Compare(a.At, b.At) })
	return steps, next, nil
}

type counter struct {
	store  *Store
	f      ForecastFilter
	slots  []Slot
	lanes  []any           // of the topic; none: all topics
	beyond int64           // from here on, all that is in the lanes is to come
	counts map[int64]int64 // by the beginning of the step
}

// run counts a stretch of steps at a time: more while that is quick, so that it can end in time.
func (c *counter) run(ctx context.Context) (next int64, err error) {
	if err := c.begin(ctx); err != nil {
		return 0, err
	}
	began, steps := time.Now(), int64(1)
	for at := c.f.From; at < c.f.To; {
		if c.f.Within > 0 && at > c.f.From && time.Since(began) >= c.f.Within {
			return at, nil
		}
		to, start := min(c.f.To, at+steps*c.f.Step), time.Now()
		if err := c.stretch(ctx, at, to); err != nil {
			return 0, err
		}
		at = to
		switch took := time.Since(start); {
		case took < stretchTime/2:
			steps *= 2
		case took > stretchTime:
			steps = max(1, steps/2)
		}
	}
	return 0, nil
}

// stretchTime is about how long one statement of a forecast takes.
const stretchTime = 100 * time.Millisecond

// begin reads where each slot stands.
//
// A lane also holds what has ended, in places up to now: tasks that were cancelled, and those
// before done. Beyond the place that every slot has claimed or passed, and beyond now, all of
// it is to come. Before it, the slots' lines tell them apart.
func (c *counter) begin(ctx context.Context) (err error) {
	if c.slots, err = c.store.Slots(ctx); err != nil || c.f.Topic == "" {
		return err
	}
	for class := range task.Classes {
		c.lanes = append(c.lanes, int64(task.LaneOf(c.f.Topic, task.Class(class))))
	}
	now, err := c.store.Time(ctx)
	c.beyond = now.UnixMilli() + 1
	for _, slot := range c.slots {
		c.beyond = max(c.beyond, slot.Claimed+1, slot.Done+1)
	}
	return err
}

// stretch counts [from, to).
func (c *counter) stretch(ctx context.Context, from, to int64) error {
	if len(c.lanes) == 0 {
		return c.lines(ctx, from, to)
	}
	if err := c.lines(ctx, from, min(to, c.beyond)); err != nil {
		return err
	}
	var ranges []indexRange
	if from := max(from, c.beyond); from < to {
		for _, lane := range c.lanes {
			ranges = append(ranges, indexRange{"lane = ? AND pos >= ? AND pos < ?", []any{lane, from, to}})
		}
	}
	return c.count(ctx, "lane", ranges)
}

// lines counts what stands in the lines of the slots.
func (c *counter) lines(ctx context.Context, from, to int64) error {
	where := "slot = ? AND pos >= ? AND pos < ?"
	if len(c.lanes) > 0 {
		where += " AND lane IN (" + marks(len(c.lanes)) + ")"
	}
	var ranges []indexRange
	for _, slot := range c.slots {
		if from := max(from, slot.Done+1); from < to {
			ranges = append(ranges, indexRange{where, append([]any{slot.Slot, from, to}, c.lanes...)})
		}
	}
	return c.count(ctx, "line", ranges)
}

// indexRange is a run of an index.
type indexRange struct {
	where string
	args  []any
}

// count adds what stands in ranges of an index.
func (c *counter) count(ctx context.Context, index string, ranges []indexRange) error {
	// Each index holds all that is asked about. Left to choose, a server may take the other one and look at every row.
	div, table := "DIV", "tasks FORCE INDEX ("+index+")"
	if c.store.sqlite {
		div, table = "/", "tasks INDEXED BY "+map[string]string{"line": "line", "lane": "tasks_lane"}[index]
	}
	for part := range stdslices.Chunk(ranges, maxRanges) {
		where, args := make([]string, len(part)), []any{c.f.From, c.f.Step}
		for i, p := range part {
			where[i], args = p.where, append(args, p.args...)
		}
		// The hint ends a statement that nobody waits for any more. MariaDB ignores it.
		query := "SELECT /*+ MAX_EXECUTION_TIME(5000) */ (pos - ?) " + div + " ? AS step, COUNT(*) FROM " + table + " WHERE " + strings.Join(where, " OR ") + " GROUP BY step"
		type row struct{ step, n int64 }
		rows, err := fetch(ctx, c.store.db, func(r *sql.Rows, v *row) error { return r.Scan(&v.step, &v.n) }, query, args...)
		if err != nil {
			return err
		}
		for _, r := range rows {
			c.counts[c.f.From+r.step*c.f.Step] += r.n
		}
	}
	return nil
}
