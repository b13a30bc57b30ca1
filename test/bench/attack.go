package bench

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"strconv"
	"strings"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/notyet/notyet/internal/kafka"
	"github.com/notyet/notyet/internal/loop"
	"github.com/notyet/notyet/schemas"
)

// Kinds of attacks.
const (
	AttackMissing  = "missing"  // n tasks, each for a topic of its own that does not exist
	AttackExisting = "existing" // n tasks, each for a topic of its own that exists
	AttackOrigins  = "origins"  // callbacks to n origins that answer one request and then none
	AttackCancels  = "cancels"  // n cancels of tasks that do not exist
)

// attack is a load of one tenant beside the measured load of another.
type attack struct {
	strike func(ctx context.Context, at time.Time) error
	after  func(ctx context.Context, at time.Time, r *Result) error // adds figures; nil: none
	others *receiver                                                // of the measured tasks, which are callbacks; nil: they go to a topic
	close  func()
}

// Attack sends rate tasks a second, each due 3 to 5 s later. After the warm-up and `last`, another intake gets the attack of a
// kind with the size n. The figures late_… are of the first intake's tasks due from that instant on, for twice `last`;
// before_late_… of those due for `last` before.
func (b *Bench) Attack(ctx context.Context, kind string, n, rate int, warmUp, last time.Duration, other string) (*Result, error) {
	a, err := b.prepare(ctx, kind, n, other)
	if err != nil {
		return nil, err
	}
	defer a.close()
	from, err := b.ends(ctx, b.cfg.Topic)
	if err != nil {
		return nil, err
	}
	begin := time.Now().Add(warmUp + longestDelay)
	at := begin.Add(last)
	end := at.Add(2 * last)
	t := &tally{from: at.UnixMilli(), to: end.UnixMilli(), calmTo: at.UnixMilli()}
	b.cfg.Say("sending %d tasks a second; the attack is at %s", rate, at.Format(time.TimeOnly))
	struck := make(chan error, 1)
	go func() { struck <- a.strike(ctx, at) }()
	l := b.newLoad(Variant{})
	if a.others != nil {
		l.requests.url = a.others.url
	}
	var sums []uint64
	warm := 0
	err = pace(ctx, rate, time.Until(end)-shortestDelay, func() {
		due := time.Now().Add(shortestDelay).UnixMilli() + rand.Int64N(delaySpread.Milliseconds())
		if due < begin.UnixMilli() {
			l.sendAs(ctx, warmUpIndex, due)
			warm++
			return
		}
		rec := l.requests.record(b.cfg.Intake, l.sent, due)
		sums = append(sums, sum(rec.Value))
		l.produce(ctx, rec)
		l.sent++
	})
	if err := errors.Join(err, <-struck, l.flush(ctx)); err != nil {
		return nil, err
	}
	t.expect(len(sums))
	if a.others == nil {
		err = b.gather(ctx, t, from, end.Add(delaySpread))
	} else if _, err = b.grow(ctx, warm+len(sums), end.Add(delaySpread), pollEvery, a.others.count); err == nil {
		a.others.into(t, sums)
	}
	if err != nil {
		return nil, err
	}
	r := newResult("attack", n)
	r.Variant = kind
	r.load = l
	r.figure("asked_per_s", float64(rate))
	r.delivered(t)
	r.quantiles("before_late", "ms", t.calm)
	r.figure("measured", float64(t.dueIn))
	if a.others != nil {
		r.Clock = "receiver"
	}
	if a.after != nil {
		err = a.after(ctx, at, r)
	}
	return r, err
}

func (b *Bench) prepare(ctx context.Context, kind string, n int, other string) (attack, error) {
	names := make([]string, n)
	run := strconv.FormatInt(time.Now().UnixNano(), 36)
	for i := range names {
		names[i] = fmt.Sprintf("notyet-bench-%s-%d", run, i)
	}
	a := attack{close: func() {}}
	switch kind {
	case AttackOrigins:
		return b.origins(n, other)
	case AttackCancels:
		return b.unknown(ctx, names, other)
	case AttackExisting:
		a.after = func(ctx context.Context, at time.Time, r *Result) error {
			all, err := b.allNamed(ctx, names)
			r.figure("named_after_s", all.Sub(at).Seconds())
			if err != nil {
				r.Wrong = append(r.Wrong, err.Error())
			}
			return nil
		}
		if err := b.many(ctx, names); err != nil {
			return a, err
		}
	}
	a.strike = func(ctx context.Context, at time.Time) error { return b.name(ctx, names, other, at) }
	return a, nil
}

// originTasks is how many callbacks an origin gets after the one that it answers.
const originTasks = 20

// origins prepares receivers that answer one request, and the next ones when the measurement is over.
func (b *Bench) origins(n int, intake string) (a attack, err error) {
	var bad []*receiver
	over := make(chan struct{})
	a.close = func() {
		close(over)
		for _, r := range append(bad, a.others) {
			if r != nil {
				r.close()
			}
		}
	}
	if a.others, err = receive(nil); err != nil {
		return a, err
	}
	for range n {
		r, err := receive(over)
		if err != nil {
			return a, err
		}
		r.free = 1
		bad = append(bad, r)
	}
	a.strike = func(ctx context.Context, at time.Time) error {
		if err := loop.Rest(ctx, time.Until(at.Add(-2*longestDelay))); err != nil {
			return err
		}
		l := b.newLoad(Variant{})
		for i := range n * (1 + originTasks) {
			due := at
			if i < n {
				due = at.Add(-shortestDelay)
			}
			l.requests.url = bad[i%n].url
			l.produce(ctx, l.requests.record(intake, uint64(i), due.UnixMilli()))
		}
		return l.flush(ctx)
	}
	a.after = func(_ context.Context, _ time.Time, r *Result) error {
		answered := 0
		for _, o := range bad {
			got, _ := o.count()
			answered += got
		}
		r.figure("answered", float64(answered))
		return nil
	}
	return a, nil
}

// unknown prepares cancels of ids that no task has. The figure rows is how many rows they leave while the measurement lasts.
func (b *Bench) unknown(ctx context.Context, ids []string, intake string) (a attack, err error) {
	if b.db == nil {
		return a, errNoDatabase
	}
	a.close = func() {}
	a.strike = func(ctx context.Context, at time.Time) error {
		if err := loop.Rest(ctx, time.Until(at)); err != nil {
			return err
		}
		l := b.newLoad(Variant{})
		for _, id := range ids {
			rec := l.requests.record(intake, 0, 0)
			rec.Key, rec.Value = []byte(id), nil
			rec.Headers = []kgo.RecordHeader{
				{Key: schemas.HeaderOp, Value: []byte(schemas.OpCancel.String())},
				{Key: schemas.HeaderTopic, Value: []byte(b.cfg.Topic)},
				{Key: schemas.HeaderID, Value: []byte(id)},
				{Key: schemas.HeaderVersion, Value: []byte("1")}, // remembered
			}
			l.produce(ctx, rec)
		}
		return l.flush(ctx)
	}
	a.after = func(ctx context.Context, _ time.Time, r *Result) error {
		n, prefix := 0, strings.TrimSuffix(ids[0], "0")
		err := b.db.db.QueryRowContext(ctx, "SELECT COUNT(*) FROM tasks WHERE topic = ? AND id LIKE ?", []byte(b.cfg.Topic), []byte(prefix+"%")).Scan(&n)
		r.figure("rows", float64(n))
		return err
	}
	return a, nil
}

// namesAtOnce is how many topics are made, or looked at, by one request.
const namesAtOnce = 500

// many makes topics of one partition.
func (b *Bench) many(ctx context.Context, names []string) error {
	b.cfg.Say("making %d topics", len(names))
	for at := 0; at < len(names); at += namesAtOnce {
		made, err := b.admin.CreateTopics(ctx, 1, -1, nil, names[at:min(at+namesAtOnce, len(names))]...)
		if err := errors.Join(err, made.Error()); err != nil {
			return err
		}
	}
	// A broker hears of topics later than their maker, the more so of many.
	known, err := b.grow(ctx, len(names), time.Now(), time.Second, func() (known int, err error) {
		for at := 0; at < len(names) && err == nil; at += namesAtOnce {
			var ids map[string][16]byte
			ids, err = kafka.TopicIDs(ctx, b.intake, names[at:min(at+namesAtOnce, len(names))]...)
			known += len(ids)
		}
		return known, err
	})
	if err == nil && known < len(names) {
		err = fmt.Errorf("the broker knows %d of %d topics", known, len(names))
	}
	return err
}

// name sends one task to each name, early enough to be stored when the tasks are due.
func (b *Bench) name(ctx context.Context, names []string, intake string, due time.Time) error {
	const most = 10_000 // a second
	ahead := time.Duration(len(names)/most+5) * time.Second
	if err := loop.Rest(ctx, time.Until(due.Add(-ahead))); err != nil {
		return err
	}
	l := b.newLoad(Variant{})
	for i, name := range names {
		l.requests.topic = []byte(name)
		l.produce(ctx, l.requests.record(intake, uint64(i), due.UnixMilli()))
	}
	return l.flush(ctx)
}

// allNamed waits until each topic has its record, and returns when the last one had.
func (b *Bench) allNamed(ctx context.Context, names []string) (time.Time, error) {
	for began := time.Now(); ; {
		missing := 0
		for at := 0; at < len(names); at += namesAtOnce {
			ends, err := b.admin.ListEndOffsets(ctx, names[at:min(at+namesAtOnce, len(names))]...)
			if err != nil {
				return time.Now(), err
			}
			for _, o := range ends.Offsets() {
				for _, p := range o {
					missing += int(max(0, 1-p.At))
				}
			}
		}
		if missing == 0 {
			return time.Now(), nil
		}
		if time.Since(began) > b.cfg.IdleTimeout {
			return time.Now(), fmt.Errorf("%d of %d names have no record", missing, len(names))
		}
		if err := loop.Rest(ctx, time.Second); err != nil {
			return time.Now(), err
		}
	}
}
