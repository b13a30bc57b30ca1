package dispatcher

import (
	"context"
	"errors"
	"maps"
	"slices"
	"time"

	"go.uber.org/zap"

	"github.com/notyet/notyet/dispatcher/flight"
	"github.com/notyet/notyet/internal/faultpoint"
	"github.com/notyet/notyet/internal/index"
	"github.com/notyet/notyet/internal/loop"
	"github.com/notyet/notyet/store"
	"github.com/notyet/notyet/store/line"
)

// claimer claims the near future of the owned slots, and flight gets the claimed tasks. Only its
// own loop uses a claimer.
type claimer struct {
	*shared
	flight    flight.Claims
	trust     *trust
	ownership *ownership // asked whose the slots are when a claim is refused
	lookahead *lookahead
	index     Index
}

// run claims a slot half a look-ahead before its next task is due, before a burst earlier. A claim
// reaches one look-ahead beyond now.
func (c *claimer) run(ctx context.Context) { c.claimRounds(ctx, c.index.Wakes(ctx)) }

func (c *claimer) claimRounds(ctx context.Context, wakes <-chan []index.SlotPos) {
	sweep := time.NewTicker(flight.SweepEvery)
	defer sweep.Stop()
	failures := 0
	for ctx.Err() == nil {
		// The loop rests after every wake. Otherwise it takes a whole core when a claim does not
		// help.
		timer := time.NewTimer(max(c.flight.Until(c.lookahead.ahead.Load()), flight.ClaimPause))
		select {
		case <-ctx.Done():
		case places, ok := <-wakes:
			if !ok {
				wakes = nil
			}
			c.flight.Woken(places)
		case <-sweep.C:
			c.lookahead.adjust(ctx)
			c.sweep(ctx)
		case <-c.kicks.Sweep:
			c.sweep(ctx)
		case <-c.kicks.Claim:
		case <-timer.C:
		}
		timer.Stop()
		if !c.trust.trusted() || c.flight.Stopping() {
			loop.Rest(ctx, flight.ClaimPause)
			continue
		}
		claimed, err := c.claim(ctx)
		switch {
		case errors.Is(err, line.ErrTurned):
			c.kicks.Slots.Now()
			if err := c.ownership.lookAtSlots(ctx); err != nil {
				if ctx.Err() == nil {
					c.log.Warn("looking at the slots failed, trying again", zap.Error(err))
				}
				loop.Rest(ctx, flight.ClaimPause)
			}
		case errors.Is(err, line.ErrLife): // held until a look has told more
		case errors.Is(err, store.ErrFenced):
			c.ownership.fenced(ctx)
			loop.Rest(ctx, flight.ClaimPause)
		case err != nil:
			failures++
			if ctx.Err() == nil {
				c.log.Warn("claiming failed, trying again", zap.Error(err))
			}
			loop.Rest(ctx, pauseAfter(failures))
		case claimed:
			failures = 0
			loop.Rest(ctx, flight.ClaimPause)
		}
	}
}

// claim claims what is due to be claimed, and tells whether there was anything.
func (c *claimer) claim(ctx context.Context) (bool, error) {
	round := c.flight.Begin(c.lookahead.ahead.Load())
	if len(round.Claims) == 0 {
		return false, nil
	}
	defer round.End()
	groups := map[claimGroup][]flight.Claim{}
	for _, l := range round.Claims {
		if l.Behind { // an outage has passed: a bite at a time
			nth, more, err := c.nth(ctx, line.Range{Slot: l.Slot, From: l.From, To: l.To}, max(round.Room/len(round.Claims), 1000))
			if err != nil {
				return false, err
			}
			if more {
				l.To = nth
			}
		}
		g := claimGroup{l.Epoch, l.To, l.Turn}
		groups[g] = append(groups[g], l)
	}
	for g, together := range groups {
		if err := c.claimTogether(ctx, round, together, g); err != nil {
			return false, err
		}
	}
	return true, nil
}

func (c *claimer) nth(ctx context.Context, r line.Range, n int) (int64, bool, error) {
	bound, cancel := context.WithTimeout(ctx, answerWithin)
	defer cancel()
	return c.line.Nth(bound, r, n)
}

type claimGroup struct{ epoch, to, turn int64 }

// claimTogether claims first and reads afterwards. Tasks written before the claim are there to be
// read, and later ones are placed behind it.
func (c *claimer) claimTogether(ctx context.Context, round flight.Claiming, ready []flight.Claim, g claimGroup) error {
	slots, from := make([]int, len(ready)), make([]int64, len(ready))
	for i, l := range ready {
		slots[i], from[i] = l.Slot, l.From
	}
	began := time.Now()
	bound, cancel := context.WithTimeout(ctx, answerWithin)
	defer cancel()
	err := c.ownership.claim(bound, g.turn, slots, from, g.epoch, g.to)
	c.claims.noteWrite(ctx, err)
	if err != nil {
		return err
	}
	if err := faultpoint.At(faultpoint.DispatcherClaimed); err != nil {
		return err
	}
	entries, err := c.readClaimed(ctx, round, ready)
	if err != nil {
		return err
	}
	c.metrics.claims.Inc()
	c.metrics.claimTime.Observe(time.Since(began).Seconds())
	round.Claimed(ready, entries)
	if len(entries) == 0 {
		c.kicks.Settle.Now()
	}
	c.askNext(ctx, ready, slots, g.to)
	return nil
}

// readClaimed reads the claimed tasks, again and again until it succeeds: claimed has moved, so the
// read must follow. It gives up when none of the slots is ours any more.
func (c *claimer) readClaimed(ctx context.Context, round flight.Claiming, ready []flight.Claim) ([]line.Entry, error) {
	ranges := rangesOf(ready)
	for failures := 0; ; failures++ {
		bound, cancel := context.WithTimeout(ctx, readWithin(failures))
		entries, err := c.line.Claimed(bound, ranges)
		cancel()
		if err == nil || round.Abandoned(ready) {
			return entries, err
		}
		c.log.Warn("reading a claimed range failed, trying again", zap.Error(err))
		if loop.Rest(ctx, pauseAfter(failures+1)); ctx.Err() != nil {
			return nil, err
		}
	}
}

// askNext asks the index for the slots' next tasks, or the database if the index does not answer.
func (c *claimer) askNext(ctx context.Context, ready []flight.Claim, slots []int, from int64) {
	places := make([]index.SlotPos, len(ready))
	for i, l := range ready {
		places[i] = index.SlotPos{Slot: l.Slot, Pos: from}
	}
	bound, cancel := context.WithTimeout(ctx, 200*time.Millisecond)
	next, err := c.index.Next(bound, places)
	cancel()
	if err != nil {
		c.metrics.indexErrors.Inc()
		bound, cancel := context.WithTimeout(ctx, answerWithin)
		_, fromStore, err := c.line.Next(bound, slots)
		cancel()
		if err != nil {
			return // the sweep asks again
		}
		next = append(next, fromStore...)
	}
	c.flight.NextKnown(next)
}

// sweep asks the database for the place of every slot, and the next tasks there.
func (c *claimer) sweep(ctx context.Context) {
	before := c.flight.Known()
	slots := slices.Sorted(maps.Keys(before))
	bound, cancel := context.WithTimeout(ctx, answerWithin)
	defer cancel()
	stand, next, err := c.line.Next(bound, slots)
	if err == nil {
		err = c.ownership.compare(ctx, stand, before)
	}
	if err != nil {
		if ctx.Err() == nil {
			c.log.Warn("asking the database for the next tasks failed", zap.Error(err))
		}
		return
	}
	c.flight.Swept(before, next)
}
