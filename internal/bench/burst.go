package bench

import (
	"context"
	"errors"
	"fmt"
	"time"
)

// Burst schedules n tasks that are all due within one second, spread over its milliseconds, and sends the last request
// before that second begins, which it does lead from now; 0 leaves that to n.
func (b *Bench) Burst(ctx context.Context, n int, lead time.Duration) (*Result, error) {
	if lead == 0 {
		lead = burstLead(n)
	}
	r := newResult("burst", n)
	from, err := b.ends(ctx, b.cfg.Topic)
	if err != nil {
		return nil, err
	}
	second := time.Now().Add(lead + time.Second - 1).Truncate(time.Second)
	b.cfg.Say("sending %d tasks, due in the second from %s", n, second.Format("15:04:05"))
	l := b.newLoad(Variant{})
	for i := range n {
		l.send(ctx, second.UnixMilli()+int64(i)*1000/int64(n))
	}
	if err := l.flush(ctx); err != nil {
		return nil, err
	}
	sent := time.Now()
	if spare := second.Sub(sent); spare < 0 {
		return nil, fmt.Errorf("sending %d tasks took %s, longer than the %s until they were due: set a longer lead", n, sent.Sub(l.began).Round(time.Second), lead)
	}
	stored, err := b.storedBy(ctx, l, second)
	if err != nil {
		return nil, err
	}
	if err := rest(ctx, time.Until(second)); err != nil {
		return nil, err
	}
	before, err := b.usage()
	if err != nil {
		return nil, err
	}
	b.cfg.Say("due now")
	if err := b.await(ctx, from, n, second.Add(time.Second)); err != nil && !errors.Is(err, ErrMissing) {
		return nil, err
	}
	after, err := b.usage()
	if err != nil {
		return nil, err
	}
	t := (&tally{}).expect(n)
	if err := b.gather(ctx, t, from, second.Add(time.Second)); err != nil {
		return nil, err
	}
	rate, err := b.rawRate(ctx, n)
	if err != nil {
		return nil, err
	}
	r.delivered(t)
	drain := perSecond(n-t.lost(), second.UnixMilli(), t.last)
	r.figure("drain_per_s", drain)
	r.figure("raw_produce_per_s", rate)
	r.figure("drain_to_raw", drain/rate)
	r.figure("sent_per_s", float64(n)/sent.Sub(l.began).Seconds())
	r.stored(stored, second, b.db != nil)
	r.used(b, before, after, n, time.Since(second).Seconds())
	return r, nil
}

// burstLead is long enough on the smallest machine that was tried: it stored 12,000 a second.
func burstLead(n int) time.Duration {
	return 5*time.Second + time.Duration(n)*time.Second/8000
}

// perSecond is a rate over Unix milliseconds, counting at least one.
func perSecond(n int, from, to int64) float64 {
	return float64(n) * 1000 / float64(max(to-from, 1))
}

// stored tells whether everything was in the database before it was due; if not, lateness is the intake's too.
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
