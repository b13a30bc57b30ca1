package bench

import (
	"context"
	"errors"
	"math/rand/v2"
	"time"
)

// Steady schedules rate tasks a second, each due 3 to 5 s later at a random millisecond. Those that are due within `last`
// after the warm-up are measured. Then it measures how long Kafka alone takes to acknowledge a record at the same rate.
func (b *Bench) Steady(ctx context.Context, rate int, warmUp, last time.Duration) (*Result, error) {
	from, err := b.ends(ctx, b.cfg.Topic)
	if err != nil {
		return nil, err
	}
	l := b.newLoad(Variant{})
	// What is due in the measured time was sent from 5 s before it on.
	begin := time.Now().Add(warmUp + longestDelay)
	end := begin.Add(last)
	b.cfg.Say("sending %d tasks a second; measuring from %s for %s", rate, begin.Format("15:04:05"), last)
	watch := b.watch(ctx, begin, end)
	if err := pace(ctx, rate, time.Until(end)-shortestDelay, func() {
		l.send(ctx, time.Now().Add(shortestDelay).UnixMilli()+rand.Int64N((longestDelay-shortestDelay).Milliseconds()))
	}); err != nil {
		return nil, err
	}
	if err := l.flush(ctx); err != nil {
		return nil, err
	}
	if _, err := b.await(ctx, from, int(l.sent), end.Add(longestDelay)); err != nil && !errors.Is(err, ErrMissing) {
		return nil, err
	}
	t := newTally(int(l.sent), begin.UnixMilli(), end.UnixMilli())
	if err := b.count(ctx, t, from); err != nil {
		return nil, err
	}
	acks, err := b.rawAcks(ctx, rate, max(last/4, min(last, 10*time.Second)))
	if err != nil {
		return nil, err
	}
	r := newResult("steady", int(l.sent))
	r.figure("asked_per_s", float64(rate))
	r.delivered(t)
	r.figure("measured", float64(t.dueIn))
	r.quantiles("raw_ack", "us", acks)
	if t.lateness.TotalCount() > 0 {
		r.figure("late_p99_over_raw_ms", float64(t.lateness.ValueAtQuantile(99))-float64(acks.ValueAtQuantile(99))/1000)
	}
	return r, watch.into(r, b, t.dueIn)
}

// Delays of a steady load.
const (
	shortestDelay = 3 * time.Second
	longestDelay  = 5 * time.Second
)

// watch looks at the processes at the beginning and the end of a window.
type watch struct {
	before, after use
	err           error
	done          chan struct{}
	seconds       float64
}

func (b *Bench) watch(ctx context.Context, begin, end time.Time) *watch {
	w := &watch{done: make(chan struct{}), seconds: end.Sub(begin).Seconds()}
	go func() {
		defer close(w.done)
		if w.err = rest(ctx, time.Until(begin)); w.err != nil {
			return
		}
		if w.before, w.err = b.usage(); w.err != nil {
			return
		}
		if w.err = rest(ctx, time.Until(end)); w.err != nil {
			return
		}
		w.after, w.err = b.usage()
	}()
	return w
}

// into adds what was seen to a result.
func (w *watch) into(r *Result, b *Bench, tasks int) error {
	<-w.done
	if w.err == nil {
		r.used(b, w.before, w.after, tasks, w.seconds)
	}
	return w.err
}
