package bench

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/notyet/notyet/internal/loop"
)

// Burst schedules n tasks that are all due within one second, spread over its milliseconds. It
// sends the last request before that second, which begins lead from now. A lead of 0 is chosen from
// n.
func (b *Bench) Burst(ctx context.Context, n int, lead time.Duration) (*Result, error) {
	if lead == 0 {
		lead = burstLead(n)
	}
	from, err := b.ends(ctx, b.cfg.Topic)
	if err != nil {
		return nil, err
	}
	r := newResult("burst", n)
	second, err := b.sendBurst(ctx, r, lead)
	if err != nil {
		return nil, err
	}
	t, err := b.drain(ctx, r, from, second)
	if err != nil {
		return nil, err
	}
	rate, err := b.rawRate(ctx, n)
	if err != nil {
		return nil, err
	}
	drain := perSecond(n-t.lost(), second.UnixMilli(), t.last)
	r.figure("drain_per_s", drain)
	r.figure("raw_produce_per_s", rate)
	r.figure("drain_to_raw", drain/rate)
	return r, nil
}

// burstLead leaves time to store 8000 tasks a second, half of what two cores that run everything
// can do.
func burstLead(n int) time.Duration {
	return 5*time.Second + time.Duration(n)*time.Second/8000
}

// sendBurst returns the beginning of the second in which the tasks are due.
func (b *Bench) sendBurst(ctx context.Context, r *Result, lead time.Duration) (second time.Time, err error) {
	second = time.Now().Add(lead + time.Second - 1).Truncate(time.Second)
	b.cfg.Say("sending %d tasks, due in the second from %s", r.Tasks, second.Format(time.TimeOnly))
	l := b.newLoad(Variant{})
	for i := range r.Tasks {
		l.send(ctx, second.UnixMilli()+int64(i)*1000/int64(r.Tasks))
	}
	if err := l.flush(ctx); err != nil {
		return second, err
	}
	took := time.Since(l.began)
	if time.Now().After(second) {
		return second, fmt.Errorf("sending %d tasks took %s, longer than the %s until they were due: set a longer lead", r.Tasks, took.Round(time.Second), lead)
	}
	r.figure("sent_per_s", float64(r.Tasks)/took.Seconds())
	stored, err := b.storedBy(ctx, l, second)
	if err != nil {
		return second, err
	}
	r.stored(stored, second, b.db != nil)
	return second, loop.Rest(ctx, time.Until(second))
}

// drain waits for the deliveries of a burst and tallies them.
func (b *Bench) drain(ctx context.Context, r *Result, from offsets, second time.Time) (*tally, error) {
	b.cfg.Say("due now")
	before, err := b.usage()
	if err != nil {
		return nil, err
	}
	lastDue := second.Add(time.Second)
	if err := b.await(ctx, from, r.Tasks, lastDue); err != nil && !errors.Is(err, ErrMissing) {
		return nil, err
	}
	after, err := b.usage()
	if err != nil {
		return nil, err
	}
	took := time.Since(second)
	t := (&tally{}).expect(r.Tasks)
	if err := b.gather(ctx, t, from, lastDue); err != nil {
		return nil, err
	}
	r.delivered(t)
	r.used(b, before, after, r.Tasks, took.Seconds())
	return t, nil
}

// perSecond returns a rate between Unix milliseconds, over at least one.
func perSecond(n int, from, to int64) float64 {
	return float64(n) * 1000 / float64(max(to-from, 1))
}

// stored notes whether everything was in the database before it was due. If not, lateness includes
// the intake's.
func (r *Result) stored(at, due time.Time, known bool) {
	switch {
	case !known:
		r.note("without a database (mysql.dsn) it is not known whether everything was stored before it was due")
	case at.IsZero():
		r.note("not everything was stored when it was due, so lateness is the intake's too: a longer lead would measure the delivery alone")
	default:
		r.figure("stored_ahead_s", due.Sub(at).Seconds())
	}
}
