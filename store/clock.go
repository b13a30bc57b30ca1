package store

import (
	"context"
	"fmt"
	"sync/atomic"
	"time"

	"go.uber.org/zap"

	"github.com/notyet/notyet/internal/faultpoint"
)

// Clock tells the database's time without asking it each time, so that all processes go by one clock: on a machine whose own is
// wrong, or is stepped, nothing is early and nothing is late.
//
// An answer of the database lies between what its clock showed when the question left and when the answer came. The clock
// moves on by this machine's monotonic time, less what quartz may be fast by, and each answer pulls it into those bounds:
// to the lower one unless it is ahead of the upper. So it is behind the database's by the quickest of recent answers, a
// fraction of a millisecond, and never ahead of it.
type Clock struct {
	store *Store
	log   *zap.Logger
	last  atomic.Pointer[reading]
}

// reading is what the database's clock showed at a moment of ours: shown at least, latest at most.
type reading struct {
	at     time.Time // with a monotonic part
	shown  time.Time
	latest time.Time
}

const (
	clockEvery = time.Second
	// quartz is the part by which this machine's clock may be fast: 1/8192 is 122 ppm; ordinary ones keep within 50.
	quartz = 8192
	// parted is a difference between the clocks that is worth a warning. Time synchronisation keeps well below it.
	parted = 250 * time.Millisecond
)

// NewClock answers a clock that shows this machine's time until Start.
func (s *Store) NewClock() *Clock {
	c := &Clock{store: s, log: s.log}
	now := time.Now()
	c.last.Store(&reading{at: now, shown: wall(now), latest: wall(now)})
	return c
}

func wall(now time.Time) time.Time { return now.Round(0).Add(faultpoint.Clock()) }

// Start asks the database until it has answered, before anybody asks for Now. An error is that of ctx.
func (c *Clock) Start(ctx context.Context) error {
	c.last.Store(&reading{at: time.Now()}) // so that the first answer's lower bound counts
	for {
		err := c.ask(ctx)
		for n := 0; err == nil; n++ { // the quickest of some answers is the best
			if n == 4 {
				return nil
			}
			err = c.ask(ctx)
		}
		if ctx.Err() == nil {
			c.log.Warn("asking the database for the time failed, trying again", zap.Error(err))
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-time.After(clockEvery):
		}
	}
}

// Run keeps the clock right until ctx ends. While the database is away, it goes on by itself.
func (c *Clock) Run(ctx context.Context) {
	tick := time.NewTicker(clockEvery)
	defer tick.Stop()
	warned := false
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
		_ = c.ask(ctx) // whoever needs the database notices
		off := c.Offset()
		if apart := off.Abs() > parted; apart != warned {
			warned = apart
			c.log.Warn("this machine's clock and the database's: tasks go by the database's", zap.Duration("database_ahead", off), zap.Bool("apart", apart))
		}
	}
}

// Now is the database's time.
func (c *Clock) Now() time.Time { return c.last.Load().moved(time.Now()) }

// Millis is Now in Unix milliseconds.
func (c *Clock) Millis() int64 { return c.Now().UnixMilli() }

// Latest is the latest that the database's time can be, in Unix milliseconds. A wait that begins by it and ends by Now is never
// too short, though Now catches up meanwhile.
func (c *Clock) Latest() int64 { return c.last.Load().bound(time.Now()).UnixMilli() }

// Offset is how far the database's clock is ahead of this machine's.
func (c *Clock) Offset() time.Duration {
	now := time.Now()
	return c.last.Load().moved(now).Sub(wall(now))
}

func (r *reading) moved(now time.Time) time.Time {
	passed := now.Sub(r.at)
	return r.shown.Add(passed - passed/quartz)
}

func (r *reading) bound(now time.Time) time.Time {
	passed := now.Sub(r.at)
	return r.latest.Add(passed + passed/quartz)
}

func (c *Clock) ask(ctx context.Context) error {
	bound, cancel := context.WithTimeout(ctx, 5*time.Second)
	defer cancel()
	sent := time.Now()
	shown, err := c.store.Time(bound)
	if err != nil {
		return err
	}
	c.learn(sent, time.Now(), shown)
	return nil
}

// learn takes an answer that was under way from sent to now.
func (c *Clock) learn(sent, now, shown time.Time) {
	last := c.last.Load()
	estimate, latest, high := last.moved(now), last.bound(now), shown.Add(now.Sub(sent))
	if estimate.Before(shown) {
		estimate = shown
	} else if estimate.After(high) {
		estimate = high
	}
	if latest.Before(estimate) || latest.After(high) {
		latest = high
	}
	c.last.Store(&reading{at: now, shown: estimate, latest: latest})
}

// Time asks the database for its time. SQLite has none but this machine's.
func (s *Store) Time(ctx context.Context) (time.Time, error) {
	switch {
	case s.now != nil:
		return s.now(), nil
	case s.sqlite:
		return wall(time.Now()), nil
	}
	var micros int64
	if err := s.db.QueryRowContext(ctx, "SELECT TIMESTAMPDIFF(MICROSECOND, '1970-01-01', UTC_TIMESTAMP(6))").Scan(&micros); err != nil {
		return time.Time{}, fmt.Errorf("asking the database for the time: %w", err)
	}
	return time.UnixMicro(micros), nil
}
