package bench

import (
	"context"
	"fmt"
	"math/rand/v2"
	"strings"
	"time"
)

// Shape is a load that is measured twice.
type Shape struct {
	// Rate is tasks a second as in Steady. 0: as many as possible as in Sustained, with at most
	// Pending in progress.
	Rate, Pending int
	WarmUp, For   time.Duration
}

func (b *Bench) run(ctx context.Context, s Shape) (*Result, error) {
	if s.Rate > 0 {
		return b.steady(ctx, s.Rate, shortestDelay, s.WarmUp, s.For)
	}
	return b.Sustained(ctx, Variant{}, s.Pending, s.WarmUp, s.For)
}

// intakeSample is how many tasks are stored before and after the backlog, to see whether storing
// has become slower.
const intakeSample = 100_000

// Backlog measures a load, schedules n tasks for tomorrow, and measures the load again with these
// tasks present.
func (b *Bench) Backlog(ctx context.Context, n int, s Shape) (*Result, error) {
	if b.db == nil {
		return nil, errNoDatabase
	}
	r := newResult("backlog", n)
	var loads []*load
	rate := func(n int) (float64, error) {
		l, err := b.fill(ctx, n, Variant{})
		if err != nil {
			return 0, err
		}
		loads = append(loads, l)
		at, err := b.stored(ctx, l)
		return float64(n) / at.Sub(l.began).Seconds(), err
	}
	sample := min(n, intakeSample)
	var rates [2]float64
	err := b.measureTwice(ctx, r, s, func(*Result) (err error) {
		if rates[0], err = rate(sample); err == nil {
			_, err = rate(n)
		}
		if err == nil {
			rates[1], err = rate(sample)
		}
		return err
	})
	if err != nil {
		return nil, err
	}
	r.figure("intake_before_per_s", rates[0])
	r.figure("intake_after_per_s", rates[1])
	r.figure("intake_ratio", rates[1]/rates[0])
	if b.cfg.Keep {
		return r, nil
	}
	b.cfg.Say("deleting the tasks from the database")
	for _, l := range loads {
		if err := b.purge(ctx, l); err != nil {
			return nil, err
		}
	}
	return r, nil
}

// History measures a load, inserts n tasks that ended within the last days into the database, and
// measures the load again. The tasks are copies of tasks of the first load, inserted by SQL: real
// ones would take as long to make as they are old.
func (b *Bench) History(ctx context.Context, n int, days float64, s Shape) (*Result, error) {
	if b.db == nil {
		return nil, errNoDatabase
	}
	r := newResult("history", n)
	err := b.measureTwice(ctx, r, s, func(before *Result) error { return b.insertHistory(ctx, before.load, n, days) })
	if err == nil && !b.cfg.Keep {
		b.cfg.Say("deleting the history from the database")
		err = b.forget(ctx, n)
	}
	return r, err
}

// measureTwice measures before and after, and compares both.
func (b *Bench) measureTwice(ctx context.Context, r *Result, s Shape, between func(before *Result) error) error {
	before, err := b.run(ctx, s)
	if err != nil {
		return err
	}
	if err := between(before); err != nil {
		return err
	}
	after, err := b.run(ctx, s)
	if err != nil {
		return err
	}
	r.Clock, r.Wrong, r.course = after.Clock, append(before.Wrong, after.Wrong...), after.course
	r.compare(before, after)
	return nil
}

// compare adds the figures of two runs, and the ratio of their costs per task.
func (r *Result) compare(before, after *Result) {
	for _, f := range after.Figures {
		if old, ok := before.Figures.Get(f.Name); ok {
			r.figure("before_"+f.Name, old)
			r.figure("after_"+f.Name, f.Value)
			if old > 0 && strings.HasSuffix(f.Name, "us_per_task") {
				r.figure(strings.TrimSuffix(f.Name, "_us_per_task")+"_ratio", f.Value/old)
			}
		}
	}
	if _, ok := after.Figures.Get("cpu_us_per_task"); !ok {
		r.note("what a task costs is not known: name the processes by --pids")
	}
}

// historySource is the source of rows that no intake record made. It is far above the sources that
// an installation allocates, and below the last one, 32767.
const historySource = 32_000

// insertHistory inserts n ended tasks.
func (b *Bench) insertHistory(ctx context.Context, of *load, n int, days float64) error {
	b.cfg.Say("inserting %d ended tasks of %g days", n, days)
	ends, err := b.db.done(ctx)
	if err != nil {
		return err
	}
	columns, rows, err := b.rows(ctx, of)
	if err != nil || len(rows) == 0 {
		return fmt.Errorf("reading tasks to copy: %d rows, %w", len(rows), err)
	}
	at := map[string]int{}
	for i, c := range strings.Split(columns, ", ") {
		at[c] = i
	}
	span := days * float64(24*time.Hour/time.Millisecond)
	return b.insertAll(ctx, "tasks", columns, n, func(i int) []any {
		row := append([]any(nil), rows[i%len(rows)]...)
		slot := i % len(ends)
		place := ends[slot] - int64(rand.Float64()*span)
		ident := make([]byte, 16)
		for j := range ident {
			ident[j] = byte(rand.Uint32())
		}
		row[at["seq"]], row[at["ident"]], row[at["slot"]] = int64(historySource)<<offsetBits|int64(i), ident, slot
		row[at["pos"]], row[at["due"]] = place, place
		return row
	})
}
