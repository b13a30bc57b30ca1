package look

import (
	"cmp"
	"context"
	"database/sql"
	"fmt"
	"math"
	stdslices "slices"
	"strings"
	"time"

	"github.com/notyet/notyet/store/internal/handle"
	"github.com/notyet/notyet/store/internal/tables"
	"github.com/notyet/notyet/task"
)

// ForecastFilter says which tasks to count, and into which steps.
type ForecastFilter struct {
	Topic    string   // "": all
	Topics   []string // several instead; empty: all
	Tag      string   // "": all
	From, To int64    // Unix ms, From included, To not
	Step     int64    // ms, at least 1
	// Within is for how long to count. 0: until all is counted.
	Within time.Duration
	// Stretch is how many entries a statement reads at most, unless they are of one step. 0:
	// 200,000, a tenth of a second of work.
	Stretch int64
}

// ForecastStep is how many tasks stand in [At, At + Step).
type ForecastStep struct {
	At    int64
	Count int64
}

// Forecast counts the coming tasks by their place in the line: the due time, the time of the next
// attempt, or the end of the wait for a report. It leaves out steps without tasks. With a tag it
// counts by due times alone, and no held task. It reads entries of two indexes in the order of
// time, and at least one step; for a topic their rows too, since another topic may share its lanes.
// If Within is over before all is counted, next is where to go on; otherwise 0.
func (r Reader) Forecast(ctx context.Context, f ForecastFilter) (steps []ForecastStep, next int64, err error) {
	most := int64(stretchRows)
	if f.Tag != "" {
		most = stretchTagged
	}
	if f.Topic != "" {
		f.Topics = []string{f.Topic}
	}
	c := counter{f: f, rows: cmp.Or(f.Stretch, most), counts: map[int64]int64{}}
	err = r.view(ctx, func(v view) (err error) {
		c.view = v
		next, err = c.run(ctx)
		return err
	})
	if err != nil {
		return nil, 0, fmt.Errorf("counting what falls due: %w", err)
	}
	for at, n := range c.counts {
		steps = append(steps, ForecastStep{at, n})
	}
	stdslices.SortFunc(steps, func(a, b ForecastStep) int { return cmp.Compare(a.At, b.At) })
	return steps, next, nil
}

type counter struct {
	view
	f      ForecastFilter
	lanes  []any           // of the topics; none: all topics
	beyond int64           // from here on, all that is in the lanes is to come
	rows   int64           // see ForecastFilter.Stretch
	counts map[int64]int64 // by the beginning of the step
}

// stretchRows is the default Stretch. With a tag, each entry is also looked up in two tables.
const (
	stretchRows   = 200_000
	stretchTagged = 20_000
)

// run counts a stretch of steps at a time, more while they are sparse, so that it can end in time.
func (c *counter) run(ctx context.Context) (next int64, err error) {
	if err := c.begin(ctx); err != nil {
		return 0, err
	}
	began, steps := time.Now(), int64(1)
	for at := c.f.From; at < c.f.To; {
		if c.f.Within > 0 && at > c.f.From && time.Since(began) >= c.f.Within {
			return at, nil
		}
		to, most := c.f.To, c.rows
		if left := (c.f.To-at-1)/c.f.Step + 1; steps < left {
			to = at + steps*c.f.Step
		} else {
			steps = left
		}
		if steps == 1 {
			most = math.MaxInt64
		}
		n, err := c.stretch(ctx, at, to, most)
		switch {
		case err != nil:
			return 0, err
		case n > most: // not all of it was read
			steps = max(1, steps/8)
			continue
		case n < c.rows/16:
			steps *= 8
		}
		at = to
	}
	return 0, nil
}

// begin finds the topics' lanes.
//
// A lane also holds ended tasks, in places up to now: cancelled ones, and those before done. Beyond
// now, and beyond each slot's claimed and done, all tasks are to come. Before, the slots' lines
// tell them apart.
func (c *counter) begin(ctx context.Context) (err error) {
	if len(c.f.Topics) == 0 || c.f.Tag != "" {
		return nil
	}
	if c.lanes, err = c.lanesOf(ctx, c.f.Topics); err != nil {
		return err
	}
	now, err := c.h.TimeIn(ctx, c.q)
	c.beyond = now.UnixMilli() + 1
	for _, slot := range c.slots {
		c.beyond = max(c.beyond, slot.Claimed+1, slot.Done+1)
	}
	return err
}

// stretch counts [from, to), and returns the number of tasks. Above most, it keeps nothing.
func (c *counter) stretch(ctx context.Context, from, to, most int64) (n int64, err error) {
	counts := map[int64]int64{}
	if c.f.Tag != "" {
		if n, err = c.countTagged(ctx, counts, from, to, most); err != nil || n > most {
			return n, err
		}
		c.keep(counts)
		return n, nil
	}
	lines := to
	if len(c.lanes) > 0 {
		lines = min(to, c.beyond)
		var ranges []indexRange
		if from := max(from, c.beyond); from < to {
			for _, lane := range c.lanes {
				ranges = append(ranges, indexRange{"lane = ? AND pos >= ? AND pos < ?", []any{lane, from, to}})
			}
		}
		if n, err = c.count(ctx, counts, "lane", ranges, most); err != nil || n > most {
			return n, err
		}
	}
	more, err := c.count(ctx, counts, "line", c.lines(from, lines), most-n)
	if n += more; err != nil || n > most {
		return n, err
	}
	c.keep(counts)
	return n, nil
}

func (c *counter) keep(counts map[int64]int64) {
	for step, n := range counts {
		c.counts[c.f.From+step*c.f.Step] += n
	}
}

// countTagged is count for the entries of a tag.
func (c *counter) countTagged(ctx context.Context, counts map[int64]int64, from, to, most int64) (n int64, err error) {
	entries, a := fmt.Sprintf("SELECT pos, seq FROM tags WHERE kind = %d AND tag = ? AND pos >= ? AND pos < ?", handle.TagOfTask), []any{[]byte(c.f.Tag), from, to}
	if most < math.MaxInt64 {
		entries, a = entries+" LIMIT ?", append(a, most+1)
	}
	coming, args := "t.pos > s.done AND t.pos < ? AND t.due = g.pos", []any{c.f.From, c.f.Step, task.Held(0)}
	if len(c.f.Topics) > 0 {
		coming, args = coming+" AND t.topic IN ("+tables.Marks(len(c.f.Topics))+")", append(args, topicArgs(c.f.Topics)...)
	}
	return c.read(ctx, counts, "SELECT "+c.h.Dialect.Quotient("(g.pos - ?)", "?")+" AS step, COUNT(*), SUM(CASE WHEN "+coming+" THEN 1 ELSE 0 END)"+
		" FROM ("+entries+") AS g LEFT JOIN tasks t ON t.seq = g.seq LEFT JOIN slots s ON s.slot = t.slot GROUP BY step", append(args, a...))
}

// read adds the counts of a statement, and returns how many entries it has read.
func (c *counter) read(ctx context.Context, counts map[int64]int64, query string, args []any) (n int64, err error) {
	type row struct{ step, n, counts int64 }
	rows, err := tables.Ask(ctx, c.q, func(r *sql.Rows, v *row) error { return r.Scan(&v.step, &v.n, &v.counts) }, query, args...)
	for _, r := range rows {
		if r.counts > 0 {
			counts[r.step] += r.counts
		}
		n += r.n
	}
	return n, err
}

// lines returns where tasks stand in the lines of the slots.
func (c *counter) lines(from, to int64) (ranges []indexRange) {
	where := "slot = ? AND pos >= ? AND pos < ?"
	if len(c.lanes) > 0 {
		where += " AND lane IN (" + tables.Marks(len(c.lanes)) + ")"
	}
	for _, slot := range c.slots {
		if from := max(from, slot.Done+1); from < to {
			ranges = append(ranges, indexRange{where, append([]any{slot.Slot, from, to}, c.lanes...)})
		}
	}
	return ranges
}

type indexRange struct {
	where string
	args  []any
}

// count adds to counts, by step, the topic's tasks in ranges of an index. n is how many entries
// were read, at most one more than most.
func (c *counter) count(ctx context.Context, counts map[int64]int64, index string, ranges []indexRange, most int64) (n int64, err error) {
	// Each index is enough. Left to choose, a server may take the other one and look at every row.
	words := c.h.Dialect
	of, topic := "1", []any(nil)
	if len(c.f.Topics) > 0 {
		of, topic = "topic IN ("+tables.Marks(len(c.f.Topics))+")", topicArgs(c.f.Topics)
	}
	for part := range stdslices.Chunk(ranges, tables.MaxRanges) {
		where, args := make([]string, len(part)), append([]any{c.f.From, c.f.Step}, topic...)
		for i, r := range part {
			where[i], args = r.where, append(args, r.args...)
		}
		from := "SELECT pos, " + of + " AS counts FROM " + words.Use("tasks", index) + " WHERE " + strings.Join(where, " OR ")
		if most < math.MaxInt64 {
			from, args = from+" LIMIT ?", append(args, most-n+1)
		}
		query := "SELECT " + words.Quotient("(pos - ?)", "?") + " AS step, COUNT(*), SUM(counts) FROM (" + from + ") AS some GROUP BY step"
		read, err := c.read(ctx, counts, query, args)
		if n += read; err != nil || n > most {
			return n, err
		}
	}
	return n, nil
}
