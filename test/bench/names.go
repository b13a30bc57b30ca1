package bench

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"strconv"
	"time"

	"github.com/notyet/notyet/internal/loop"
)

// Names sends rate tasks a second, each due 3 to 5 s later. After the warm-up and `last`, another intake has n tasks, each for
// a topic of its own name, all due at one instant. The topics exist if existing says so. The figures late_… are of the first
// intake's tasks due from that instant on, for twice `last`; before_late_… of those due for `last` before.
func (b *Bench) Names(ctx context.Context, n, rate int, warmUp, last time.Duration, other string, existing bool) (*Result, error) {
	names := make([]string, n)
	run := strconv.FormatInt(time.Now().UnixNano(), 36)
	for i := range names {
		names[i] = fmt.Sprintf("notyet-bench-%s-%d", run, i)
	}
	if existing {
		if err := b.many(ctx, names); err != nil {
			return nil, err
		}
	}
	from, err := b.ends(ctx, b.cfg.Topic)
	if err != nil {
		return nil, err
	}
	begin := time.Now().Add(warmUp + longestDelay)
	due := begin.Add(last)
	end := due.Add(2 * last)
	t := &tally{from: due.UnixMilli(), to: end.UnixMilli(), calmTo: due.UnixMilli()}
	b.cfg.Say("sending %d tasks a second; %d names are due at %s", rate, n, due.Format(time.TimeOnly))
	named := make(chan error, 1)
	go func() { named <- b.name(ctx, names, other, due) }()
	l := b.newLoad(Variant{})
	err = pace(ctx, rate, time.Until(end)-shortestDelay, func() {
		at := time.Now().Add(shortestDelay).UnixMilli() + rand.Int64N(delaySpread.Milliseconds())
		if at < begin.UnixMilli() {
			l.sendAs(ctx, warmUpIndex, at)
		} else {
			l.send(ctx, at)
		}
	})
	if err := errors.Join(err, <-named, l.flush(ctx)); err != nil {
		return nil, err
	}
	if err := b.gather(ctx, t.expect(int(l.sent)), from, end.Add(delaySpread)); err != nil {
		return nil, err
	}
	r := newResult("names", n)
	r.Variant = map[bool]string{true: "existing", false: "missing"}[existing]
	r.load = l
	r.figure("asked_per_s", float64(rate))
	r.delivered(t)
	r.quantiles("before_late", "ms", t.calm)
	r.figure("measured", float64(t.dueIn))
	if existing {
		at, err := b.allNamed(ctx, names)
		r.figure("named_after_s", at.Sub(due).Seconds())
		if err != nil {
			r.Wrong = append(r.Wrong, err.Error())
		}
	}
	return r, nil
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
	return nil
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
