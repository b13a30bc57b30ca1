package bench

import (
	"context"
	"errors"
	"time"
)

// settling counts what the database has settled, at both ends of a window. Without a database it
// counts nothing.
type settling struct {
	b             *Bench
	variant       Variant
	window        float64 // seconds
	before, after int
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
		errs[0] = sleep(ctx, time.Until(begin))
		s.before, errs[1] = s.look(ctx)
		errs[2] = sleep(ctx, time.Until(end))
		s.after, errs[3] = s.look(ctx)
		s.err = errors.Join(errs[:]...)
	}()
	return s
}

// look returns a count of settled tasks, of which only the difference between two calls is
// meaningful. With reports it counts the stored reports. Otherwise it counts the stored requests
// minus the open tasks.
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

// into adds how many tasks were settled in the window.
func (s *settling) into(r *Result) error {
	<-s.done
	if s.err == nil && s.b.db != nil {
		r.figure("settled_per_s", float64(s.after-s.before)/s.window)
	}
	return s.err
}
