package bench

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"time"

	"github.com/notyet/notyet/internal/loop"
)

// Sustained schedules as many tasks as possible, each due 1 to 3 s later, with at most pending of
// them not yet delivered. It measures for `last` after the warm-up.
func (b *Bench) Sustained(ctx context.Context, v Variant, pending int, warmUp, last time.Duration) (*Result, error) {
	from, err := b.ends(ctx, b.cfg.Topic)
	if err != nil {
		return nil, err
	}
	told, err := b.ends(ctx, b.cfg.Results)
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	var reports *reporter
	if v.Report {
		if reports, err = b.report(ctx, from, func(uint64) bool { return true }); err != nil {
			return nil, err
		}
		defer reports.close()
	}
	begin := time.Now().Add(warmUp)
	end := begin.Add(last)
	b.cfg.Say("sending as much as goes through, %s; measuring from %s for %s", v.Name(), begin.Format("15:04:05"), last)
	l := b.newLoad(v)
	watch := b.watch(ctx, begin, end)
	settled := b.watchSettled(ctx, v, begin, end)
	if err := b.sendUpTo(ctx, l, from, pending, end); err != nil {
		return nil, err
	}
	if err := l.flush(ctx); err != nil {
		return nil, err
	}
	t := (&tally{from: begin.UnixMilli(), to: end.UnixMilli()}).expect(int(l.sent))
	if err := b.gather(ctx, t, from, time.Now().Add(longestPressed)); err != nil {
		return nil, err
	}
	if v.Report {
		if err := reports.await(ctx, t.records()); err != nil {
			return nil, err
		}
	}
	r := newResult("sustained", int(l.sent))
	r.Variant, r.load = v.Name(), l
	r.figure("delivered_per_s", float64(t.inWindow)/last.Seconds())
	if err := settled.into(r); err != nil {
		return nil, err
	}
	r.delivered(t)
	if err := watch.into(r, b, t.inWindow); err != nil {
		return nil, err
	}
	if v.IDs {
		return r, b.finalEvents(ctx, r, told, t)
	}
	return r, nil
}

// Delays of a sustained load.
const (
	shortestPressed = time.Second
	longestPressed  = 3 * time.Second
)

// sendUpTo sends until the end, with at most pending tasks outstanding.
func (b *Bench) sendUpTo(ctx context.Context, l *load, from offsets, pending int, end time.Time) error {
	delivered, moved, looked := 0, time.Now(), time.Now()
	for now := time.Now(); now.Before(end); now = time.Now() {
		if now.Sub(looked) >= pollEvery {
			ends, err := b.ends(ctx, b.cfg.Topic)
			if err != nil {
				return err
			}
			if n := ends.since(from); n > delivered {
				delivered, moved = n, now
			}
			looked = now
		}
		if now.Sub(moved) > b.cfg.IdleTimeout {
			return fmt.Errorf("%w: %d of %d came, and none for %s", ErrMissing, delivered, l.sent, b.cfg.IdleTimeout)
		}
		room := min(pending-(int(l.sent)-delivered), 500)
		for range room {
			l.send(ctx, now.Add(shortestPressed).UnixMilli()+rand.Int64N((longestPressed-shortestPressed).Milliseconds()))
		}
		if room <= 0 {
			if err := loop.Rest(ctx, pollEvery/5); err != nil {
				return err
			}
		}
		if err := errors.Join(ctx.Err(), l.err()); err != nil {
			return err
		}
	}
	return nil
}

// finalEvents waits for the events of tasks that have ids. Other programs' events could hide that
// one is missing, so nobody else should use the installation meanwhile.
func (b *Bench) finalEvents(ctx context.Context, r *Result, from offsets, t *tally) error {
	want := r.Tasks - t.lost()
	n, err := b.grow(ctx, want, time.Now(), pollEvery, func() (int, error) { return b.arrived(ctx, b.cfg.Results, from) })
	if err != nil {
		return err
	}
	r.figure("final_events", float64(n))
	if n < want {
		r.Wrong = append(r.Wrong, fmt.Sprintf("%d final events are missing", want-n))
	}
	return nil
}
