package bench

import (
	"context"
	"fmt"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/notyet/notyet/schemas"
)

// Ingest schedules n tasks for tomorrow and measures from the first request until all are stored
// and visible. With a database it compares this with the database's own insert rate, and purges the
// tasks. Without one it counts `scheduled` events, which are extra work, and cancels the tasks.
func (b *Bench) Ingest(ctx context.Context, n int) (*Result, error) {
	r := newResult("ingest", n)
	told, err := b.ends(ctx, b.cfg.Results)
	if err != nil {
		return nil, err
	}
	before, err := b.usage()
	if err != nil {
		return nil, err
	}
	l, err := b.fill(ctx, n, Variant{scheduledEvents: b.db == nil})
	if err != nil {
		return nil, err
	}
	sent := time.Now()
	stored, err := b.allStored(ctx, l, told, n)
	if err != nil {
		return nil, err
	}
	after, err := b.usage()
	if err != nil {
		return nil, err
	}
	took := stored.Sub(l.began)
	rate := float64(n) / took.Seconds()
	r.figure("ingest_per_s", rate)
	r.figure("sent_per_s", float64(n)/sent.Sub(l.began).Seconds())
	r.used(b, before, after, n, took.Seconds())
	if b.db == nil {
		r.note("no database (mysql.dsn): measured until the `scheduled` events were there, which are extra work; no comparison with it alone")
		return r, b.cancel(ctx, l, r)
	}
	return r, b.compare(ctx, l, r, rate)
}

// allStored waits until the n tasks of a load are stored, and returns when that was. Without a database they have `scheduled` events,
// which are behind told on the results topic.
func (b *Bench) allStored(ctx context.Context, l *load, told offsets, n int) (time.Time, error) {
	if b.db != nil {
		return b.stored(ctx, l)
	}
	return b.awaitScheduled(ctx, told, n)
}

// fill sends n requests that are due within an hour of tomorrow.
func (b *Bench) fill(ctx context.Context, n int, v Variant) (*load, error) {
	b.cfg.Say("scheduling %d tasks for tomorrow", n)
	l := b.newLoad(v)
	due := l.began.Add(24 * time.Hour).UnixMilli()
	for i := range n {
		l.send(ctx, due+int64(i)%3_600_000)
	}
	return l, l.flush(ctx)
}

func (b *Bench) compare(ctx context.Context, l *load, r *Result, rate float64) error {
	visible, err := b.visible(ctx, l)
	if err != nil {
		return err
	}
	if lost := r.Tasks - visible; lost != 0 {
		r.Wrong = append(r.Wrong, fmt.Sprintf("%d of %d tasks are not in the database", lost, r.Tasks))
	}
	raw, err := b.insertRate(ctx, l)
	if err != nil {
		return err
	}
	r.figure("raw_insert_per_s", raw)
	r.figure("ingest_to_raw", rate/raw)
	if b.cfg.Keep {
		return nil
	}
	r.note("the tasks were deleted from the database by hand: cancelling them would have been as much work again")
	return b.purge(ctx, l)
}

// awaitScheduled waits for n `scheduled` events on the results topic.
func (b *Bench) awaitScheduled(ctx context.Context, from offsets, n int) (time.Time, error) {
	seen := 0
	_, err := b.grow(ctx, n, time.Now(), pollEvery, func() (int, error) {
		to, err := b.ends(ctx, b.cfg.Results)
		if err != nil {
			return seen, err
		}
		err = b.read(ctx, b.cfg.Results, from, to, func(r *kgo.Record) {
			if e, err := schemas.DecodeEvent(r); err == nil && e.Topic == b.cfg.Topic && e.State == schemas.StateScheduled {
				seen++
			}
		})
		from = to
		return seen, err
	})
	if err == nil && seen < n {
		err = fmt.Errorf("%d of %d `scheduled` events came, and none for %s: is a scanner running?", seen, n, b.cfg.IdleTimeout)
	}
	return time.Now(), err
}

// cancel cancels the tasks of a load by their default ids. Each request must carry its task's key,
// to follow it in the same partition; the load makes the same keys again.
func (b *Bench) cancel(ctx context.Context, l *load, r *Result) error {
	if b.cfg.Keep {
		return nil
	}
	b.cfg.Say("cancelling the tasks")
	sent := b.newLoad(Variant{})
	for p, end := range l.ends {
		for offset := l.first[p]; offset < end; offset++ {
			rec := &kgo.Record{Topic: b.cfg.Intake, Headers: []kgo.RecordHeader{
				{Key: schemas.HeaderOp, Value: []byte(schemas.OpCancel.String())},
				{Key: schemas.HeaderTopic, Value: []byte(b.cfg.Topic)},
				{Key: schemas.HeaderID, Value: []byte(schemas.DefaultID(b.cfg.Intake, p, offset))},
			}}
			b.intake.Produce(ctx, rec, func(_ *kgo.Record, err error) {
				if err != nil {
					sent.failed.CompareAndSwap(nil, &err)
				}
			})
		}
	}
	r.note("the tasks were cancelled by their ids, which is answered by an event each")
	return sent.flush(ctx)
}
