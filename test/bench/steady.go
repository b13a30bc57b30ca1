package bench

import (
	"context"
	"math/rand/v2"
	"time"

	"github.com/notyet/notyet/internal/loop"
)

// Steady schedules rate tasks a second, each due ahead to two seconds more later, at a random millisecond. It
// measures those that are due within `last` after the warm-up. Then it measures how long Kafka
// alone takes to acknowledge records at the same rate.
func (b *Bench) Steady(ctx context.Context, rate int, ahead, warmUp, last time.Duration) (*Result, error) {
	r, err := b.steady(ctx, rate, ahead, warmUp, last)
	if err != nil {
		return nil, err
	}
	acks, err := b.rawAcks(ctx, rate, max(last/4, min(last, 10*time.Second)))
	if err != nil {
		return nil, err
	}
	r.quantiles("raw_ack", "us", acks)
	if late, ok := r.Figures.Get("late_p99_ms"); ok {
		r.figure("late_p99_over_raw_ms", late-float64(acks.ValueAtQuantile(99))/1000)
	}
	return r, nil
}

// steady is Steady without the comparison.
func (b *Bench) steady(ctx context.Context, rate int, ahead, warmUp, last time.Duration) (*Result, error) {
	begin := time.Now().Add(warmUp + ahead + delaySpread) // tasks due then were sent after the warm-up began
	end := begin.Add(last)
	watch := b.watch(ctx, begin, end)
	t, l, err := b.flow(ctx, rate, ahead, &tally{from: begin.UnixMilli(), to: end.UnixMilli()})
	if err != nil {
		return nil, err
	}
	r := newResult("steady", int(l.sent))
	r.load = l
	r.figure("asked_per_s", float64(rate))
	r.delivered(t)
	r.figure("measured", float64(t.dueIn))
	return r, watch.into(r, b, t.dueIn)
}

// Delays of a steady load that is sent shortestDelay ahead.
const (
	shortestDelay = 3 * time.Second
	delaySpread   = 2 * time.Second
	longestDelay  = shortestDelay + delaySpread
)

// flow sends rate tasks a second until all tasks of the tally's window are sent, and tallies the
// deliveries.
func (b *Bench) flow(ctx context.Context, rate int, ahead time.Duration, t *tally) (*tally, *load, error) {
	from, err := b.ends(ctx, b.cfg.Topic)
	if err != nil {
		return nil, nil, err
	}
	begin, end := time.UnixMilli(t.from), time.UnixMilli(t.to)
	b.cfg.Say("sending %d tasks a second; measuring from %s for %s", rate, begin.Format(time.TimeOnly), end.Sub(begin))
	l := b.newLoad(Variant{})
	err = pace(ctx, rate, time.Until(end)-ahead, func() {
		l.send(ctx, time.Now().Add(ahead).UnixMilli()+rand.Int64N(delaySpread.Milliseconds()))
	})
	if err == nil {
		err = l.flush(ctx)
	}
	if err != nil {
		return nil, nil, err
	}
	t.expect(int(l.sent))
	return t, l, b.gather(ctx, t, from, end.Add(ahead+delaySpread))
}

// watch reads the processes' use at the beginning and the end of a window.
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
		if w.err = loop.Rest(ctx, time.Until(begin)); w.err != nil {
			return
		}
		if w.before, w.err = b.usage(); w.err != nil {
			return
		}
		if w.err = loop.Rest(ctx, time.Until(end)); w.err != nil {
			return
		}
		w.after, w.err = b.usage()
	}()
	return w
}

// into adds the use to a result.
func (w *watch) into(r *Result, b *Bench, tasks int) error {
	<-w.done
	if w.err == nil {
		r.used(b, w.before, w.after, tasks, w.seconds)
	}
	return w.err
}
