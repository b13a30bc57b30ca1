package bench

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/notyet/notyet/internal/loop"
)

// settling counts what the database has settled within a window. Without a database it counts
// nothing.
type settling struct {
	b             *Bench
	variant       Variant
	begin, end    time.Time
	before, after int // see look
	succeeded     int // with reports: tasks that ended in the window
	err           error
	done          chan struct{}
}

func (b *Bench) watchSettled(ctx context.Context, v Variant, begin, end time.Time) *settling {
	s := &settling{b: b, variant: v, begin: begin, end: end, done: make(chan struct{})}
	go func() {
		defer close(s.done)
		if b.db == nil {
			return
		}
		var errs [5]error
		errs[0] = loop.Rest(ctx, time.Until(begin))
		s.before, errs[1] = s.look(ctx)
		errs[2] = loop.Rest(ctx, time.Until(end))
		s.after, errs[3] = s.look(ctx)
		if v.Report {
			s.succeeded, errs[4] = b.db.succeeded(ctx, begin, end)
		}
		s.err = errors.Join(errs[:]...)
	}()
	return s
}

// look returns a count, of which only the difference between two calls is meaningful: of stored
// reports, or without reports of settled tasks, which are the stored requests minus the open tasks.
func (s *settling) look(ctx context.Context) (int, error) {
	if s.variant.Report {
		return s.b.taken(ctx, s.b.cfg.Reports)
	}
	stored, err := s.b.taken(ctx, s.b.cfg.Intake)
	if err != nil {
		return 0, err
	}
	open, err := s.b.db.open(ctx)
	return stored - open, err
}

// succeeded counts the tasks that ended as succeeded in [from, to). A stored report may still wait
// for its task, so this is another number than that of the reports. The rows tell it: a task that has
// ended stands at the instant of its end.
func (d *database) succeeded(ctx context.Context, from, to time.Time) (int, error) {
	n := 0
	err := d.db.QueryRowContext(ctx, "SELECT COUNT(*) FROM tasks WHERE slot = ? AND pos >= ? AND pos < ? AND state = ?",
		outOfLine, from.UnixMilli(), to.UnixMilli(), stateSucceeded).Scan(&n)
	if err != nil {
		return 0, fmt.Errorf("counting the tasks that succeeded: %w", err)
	}
	return n, nil
}

// Where tasks stand that have ended, and the state of those that succeeded: see docs/design/protocol.md.
const outOfLine, stateSucceeded = -1, 12

// into adds how many tasks were settled in the window, and how many reports were stored.
func (s *settling) into(r *Result) error {
	<-s.done
	if s.err != nil || s.b.db == nil {
		return s.err
	}
	window, looked := s.end.Sub(s.begin).Seconds(), float64(s.after-s.before)
	if !s.variant.Report {
		r.figure("settled_per_s", looked/window)
		return nil
	}
	r.figure("succeeded_per_s", float64(s.succeeded)/window)
	r.figure("reports_per_s", looked/window)
	return nil
}
