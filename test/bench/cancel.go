package bench

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"strconv"
	"strings"
	"time"

	"github.com/notyet/notyet/internal/loop"
)

// CancelByTag cancels all tasks that have a tag, and returns how many it has cancelled.
type CancelByTag func(ctx context.Context, tag string) (cancelled int64, err error)

// Cancel schedules n tasks with one tag for tomorrow. Then it sends rate others a second, each due 3 to 5 s later, and has the n
// tasks cancelled. The figures late_… are of others that were due meanwhile, before_late_… of those that were due for `last` before.
func (b *Bench) Cancel(ctx context.Context, n, rate int, warmUp, last time.Duration, cancel CancelByTag) (*Result, error) {
	told, err := b.ends(ctx, b.cfg.Results)
	if err != nil {
		return nil, err
	}
	tag := "bench-" + strconv.FormatInt(time.Now().UnixNano(), 36)
	tagged, err := b.fill(ctx, n, Variant{tag: tag, scheduledEvents: b.db == nil})
	if err != nil {
		return nil, err
	}
	if _, err := b.allStored(ctx, tagged, told, n); err != nil {
		return nil, err
	}
	from, err := b.ends(ctx, b.cfg.Topic)
	if err != nil {
		return nil, err
	}
	b.cfg.Say("sending %d tasks a second; cancelling after %s", rate, warmUp+longestDelay+last)
	sending, stop := context.WithCancel(ctx)
	defer stop()
	l, sent := b.newLoad(Variant{}), make(chan error, 1)
	begin := time.Now().Add(warmUp)
	go func() {
		sent <- pace(sending, rate, 24*time.Hour, func() {
			now := time.Now()
			due := now.Add(shortestDelay).UnixMilli() + rand.Int64N(delaySpread.Milliseconds())
			if now.Before(begin) {
				l.sendAs(ctx, warmUpIndex, due)
			} else {
				l.send(ctx, due)
			}
		})
	}()
	t := &tally{}
	at := begin.Add(longestDelay + last)
	calm := b.watch(ctx, begin.Add(longestDelay), at)
	took, cancelled, err := b.cancelBeside(ctx, t, at, func(ctx context.Context) (int64, error) { return cancel(ctx, tag) })
	used, unread := b.usage()
	stop()
	if stopped := <-sent; err == nil && !errors.Is(stopped, context.Canceled) {
		err = stopped
	}
	if err == nil {
		err = cmp.Or(unread, l.flush(ctx))
	}
	if err == nil {
		err = b.gather(ctx, t.expect(int(l.sent)), from, time.Now().Add(longestDelay))
	}
	if err != nil {
		return nil, err
	}
	r := newResult("cancel", n)
	r.load = l
	r.figure("asked_per_s", float64(rate))
	r.figure("cancelled", float64(cancelled))
	r.figure("cancel_s", took.Seconds())
	r.figure("cancelled_per_s", float64(cancelled)/took.Seconds())
	if cancelled != int64(n) {
		r.Wrong = append(r.Wrong, fmt.Sprintf("%d of %d tasks were cancelled", cancelled, n))
	}
	r.delivered(t)
	r.quantiles("before_late", "ms", t.calm)
	if err := calm.beside(r, b, used, n, took); err != nil {
		return nil, err
	}
	r.figure("measured", float64(t.dueIn))
	if b.cfg.Keep || b.db == nil {
		return r, nil
	}
	b.cfg.Say("deleting the cancelled tasks from the database")
	return r, b.purge(ctx, tagged)
}

// beside adds what the processes used from the watch's end to the reading after, and before as a
// share of one core.
func (w *watch) beside(r *Result, b *Bench, after use, tasks int, took time.Duration) error {
	calm := newResult(r.Shape, 0)
	if err := w.into(calm, b, 0); err != nil {
		return err
	}
	r.used(b, w.after, after, tasks, took.Seconds())
	for _, f := range calm.Figures {
		if strings.HasSuffix(f.Name, "percent") {
			r.figure("before_"+f.Name, f.Value)
		}
	}
	return nil
}

// cancelBeside cancels at an instant, and notes in a tally when it began and ended.
func (b *Bench) cancelBeside(ctx context.Context, t *tally, at time.Time, cancel func(context.Context) (int64, error)) (took time.Duration, cancelled int64, err error) {
	if err := loop.Rest(ctx, time.Until(at)); err != nil {
		return 0, 0, err
	}
	b.cfg.Say("cancelling")
	began := time.Now()
	cancelled, err = cancel(ctx)
	ended := time.Now()
	t.from, t.to, t.calmTo = began.UnixMilli(), ended.UnixMilli(), began.UnixMilli()
	return ended.Sub(began), cancelled, err
}
