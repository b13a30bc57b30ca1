package store

import (
	"context"
	"sync"
	"sync/atomic"
	"time"

	"go.uber.org/zap"

	"github.com/notyet/notyet/internal/loop"
	"github.com/notyet/notyet/internal/machine"
)

// Clock tells the database's time without asking for it each time. All processes use it, so a
// machine whose own clock is wrong or is stepped makes nothing early and nothing late.
//
// The time in the database's answer is from some moment between question and answer. Each answer
// therefore sets two bounds: the time that it shows, and that time plus the round trip. Between
// answers the Clock advances by the slower of this machine's monotonic clock and its oscillator,
// less maxDrift: time synchronisation may slew the former. An answer pulls it up to the lower
// bound, or down to the upper one. So it is never ahead of the database's time, and behind it by
// the round trip of the quickest recent answer: a fraction of a millisecond.
type Clock struct {
	store *Store
	log   *zap.Logger
	last  atomic.Pointer[reading]

	asking  sync.Mutex // guards what follows; whoever holds it may ask
	started bool
	warned  bool
}

// reading bounds the database's clock at a moment of this machine.
type reading struct {
	at     machine.Instant
	shown  time.Time // the database's time, at least
	latest time.Time // and at most
	// After the database's clock was set back, other processes may go by the old time until they
	// ask again. others is the latest time that they may show at `at`, until then.
	others time.Time
	until  time.Time
}

const (
	clockEvery = time.Second
	// askedBy is when each process has asked again that can reach the database.
	askedBy = 10 * time.Second
	// setBack is from how much on the clock counts as set back. Less keeps clocks in step.
	setBack = 5 * time.Millisecond
	// maxDrift is the inverse of how fast or slow this machine's oscillator may run: 1/8192 is 122
	// ppm. Ordinary ones keep within 50.
	maxDrift = 8192
	// skewWarning is the difference of clocks to warn of. Time synchronisation keeps it far lower.
	skewWarning = 250 * time.Millisecond
)

// Clock returns the process's Clock of this database. Until Start, it shows this machine's time.
func (s *Store) Clock() *Clock {
	s.clockOnce.Do(func() {
		now := machine.Now()
		s.clock = &Clock{store: s, log: s.log}
		s.clock.last.Store(&reading{at: now, shown: now.Wall(), latest: now.Wall()})
	})
	return s.clock
}

// instant is the present moment, as far as the database's clock goes along with it.
func (c *Clock) instant(look func() machine.Instant) machine.Instant {
	if c.store == nil || c.store.h == nil { // a store that was not opened
		return machine.Instant{Time: look().Time}
	}
	return c.store.dialect.Moment(look)
}

// Start asks the database until it has answered. Call it before Now; each part of a process may.
// The only error is that of ctx.
func (c *Clock) Start(ctx context.Context) error {
	c.asking.Lock()
	defer c.asking.Unlock()
	if !c.started {
		c.last.Store(&reading{at: c.instant(machine.Exact)}) // the zero time: the first answer counts, whatever it shows
		c.started = true
	}
	for {
		err := c.ask(ctx)
		for n := 0; err == nil; n++ { // of several answers, the quickest is the most exact
			if n == 4 {
				return nil
			}
			err = c.ask(ctx)
		}
		if ctx.Err() == nil {
			c.log.Warn("asking the database for the time failed, trying again", zap.Error(err))
		}
		if err := loop.Rest(ctx, clockEvery); err != nil {
			return err
		}
	}
}

// Run corrects the Clock until ctx ends. Without answers, the Clock runs on by itself. Each part of
// a process may run it: they ask in turn.
func (c *Clock) Run(ctx context.Context) { loop.Every(ctx, clockEvery, c.correct) }

// correct asks, unless another part of the process does or has just done so.
func (c *Clock) correct(ctx context.Context) {
	if !c.asking.TryLock() {
		return
	}
	defer c.asking.Unlock()
	if c.instant(machine.Now).Most(c.last.Load().at) < clockEvery/2 {
		return
	}
	_ = c.ask(ctx) // whoever needs the database reports the error
	off := c.Offset()
	if apart := off.Abs() > skewWarning; apart != c.warned {
		c.warned = apart
		c.log.Warn("this machine's clock differs from the database's, which decides when tasks are due", zap.Duration("database_ahead", off), zap.Bool("apart", apart))
	}
}

// Now is the database's time.
func (c *Clock) Now() time.Time { return c.last.Load().moved(c.instant(machine.Now)) }

// Millis is Now in Unix milliseconds.
func (c *Clock) Millis() int64 { return c.Now().UnixMilli() }

// At is a clock that stands at now.
func At(now int64) func() int64 { return func() int64 { return now } }

// Latest is the latest time that the database, or another process's Clock, can show now, in Unix
// ms. A wait from Latest to Now is never too short, whoever ends it, although Now may jump forward.
func (c *Clock) Latest() int64 { return c.last.Load().anybody(c.instant(machine.Exact)).UnixMilli() }

// Offset is how far the database's clock is ahead of this machine's.
func (c *Clock) Offset() time.Duration {
	now := c.instant(machine.Now)
	return c.last.Load().moved(now).Sub(now.Wall())
}

func (r *reading) moved(now machine.Instant) time.Time {
	passed := now.Least(r.at)
	return r.shown.Add(passed - passed/maxDrift)
}

func (r *reading) bound(now machine.Instant) time.Time {
	passed := now.Most(r.at)
	return r.latest.Add(passed + passed/maxDrift)
}

func (r *reading) anybody(now machine.Instant) time.Time {
	bound := r.bound(now)
	if others := r.others.Add(bound.Sub(r.latest)); now.Time.Before(r.until) && others.After(bound) {
		return others
	}
	return bound
}

func (c *Clock) ask(ctx context.Context) error {
	bound, cancel := context.WithTimeout(ctx, 5*time.Second)
	defer cancel()
	sent := c.instant(machine.Exact)
	shown, err := c.store.h.Time(bound)
	if err != nil {
		return err
	}
	c.learn(sent, c.instant(machine.Exact), shown)
	return nil
}

// learn applies an answer to a question that left at sent and was answered at now.
func (c *Clock) learn(sent, now machine.Instant, shown time.Time) {
	last := c.last.Load()
	estimate, latest, high := last.moved(now), last.bound(now), shown.Add(now.Most(sent))
	if estimate.Before(shown) {
		estimate = shown
	} else if estimate.After(high) {
		estimate = high
	}
	if latest.Before(estimate) || latest.After(high) {
		latest = high
	}
	next := &reading{at: now, shown: estimate, latest: latest, others: last.anybody(now), until: last.until}
	if last.moved(now).Sub(high) > setBack {
		next.until = now.Time.Add(askedBy)
	}
	c.last.Store(next)
}
