package bench

import (
	"context"
	"errors"
	"time"
)

// settling looks at both ends of a window at what the database holds as done. Without a database it looks at nothing.
type settling struct {
	b             *Bench
	variant       Variant
	window        float64 // seconds
	before, after int     // unsettled tasks that are due; with reports: reports taken
	err           error
	done          chan struct{}
}

func (b *Bench) watchSettled(ctx context.Context, v Variant, begin, end time.Time) *settling {
	s := &settling{b: b, variant: v, window: end.Sub(begin).Seconds(), done: make(chan struct{})}
	go func() {
		defer close(s.done)
		if b.db == nil {
			return
		}
		var errs [4]error
		errs[0] = rest(ctx, time.Until(begin))
		s.before, errs[1] = s.look(ctx)
		errs[2] = rest(ctx, time.Until(end))
		s.after, errs[3] = s.look(ctx)
		s.err = errors.Join(errs[:]...)
	}()
	return s
}

func (s *settling) look(ctx context.Context) (int, error) {
	if s.variant.Report {
		return s.b.taken(ctx, s.b.cfg.Reports)
	}
	return s.b.db.unsettled(ctx)
}

// into adds how many tasks were settled in the window: those that fell due in it, less what more is unsettled at its end;
// with reports, those whose report was stored.
func (s *settling) into(r *Result, t *tally) error {
	<-s.done
	if s.err != nil || s.b.db == nil {
		return s.err
	}
	if s.variant.Report {
		r.figure("settled_per_s", float64(s.after-s.before)/s.window)
		return nil
	}
	r.figure("settled_per_s", float64(t.dueIn-(s.after-s.before))/s.window)
	r.figure("unsettled_at_end", float64(s.after))
	return nil
}
