package dispatcher

import (
	"context"
	"errors"
	"math"
	"slices"
	"time"

	"go.uber.org/zap"

	"github.com/notyet/notyet/dispatcher/flight"
	"github.com/notyet/notyet/internal/index"
	"github.com/notyet/notyet/internal/loop"
	"github.com/notyet/notyet/internal/slots"
	"github.com/notyet/notyet/store"
	"github.com/notyet/notyet/store/line"
)

// changer carries out changes of the number of slots: each owner splits its slots, one after the
// other, and moves their tasks to their new slots; the owner of slot 0 ends the change. The
// progress is in the database, so the next owner goes on where this one ends
// (docs/design/slots.md). Only its own loop uses a changer.
type changer struct {
	*shared
	flight    flight.Changing
	claimLoop flight.Claims // told of tasks that moved
	trust     *trust
	ownership *ownership
	index     Index

	busy   map[int]busySlot    // slots that were not split, for now
	shifts map[int]*line.Shift // split slots whose tasks are on the move
	waited map[int]time.Time   // those with tasks that stay behind for now: until then
}

type busySlot struct {
	times int
	until time.Time
}

func newChanger(fl *flight.Flight, ow *ownership, ix Index) *changer {
	return &changer{shared: ow.shared, flight: fl.Changing, claimLoop: fl.Claims, trust: ow.trust, ownership: ow, index: ix, busy: map[int]busySlot{}, waited: map[int]time.Time{}, shifts: map[int]*line.Shift{}}
}

const (
	// changeEvery is how often slots are looked at while their number changes.
	changeEvery = 200 * time.Millisecond
	// leftEvery is how often tasks that stay behind are looked at.
	leftEvery = time.Second
	// drainWithin is how long a slot may take to drain, beyond its claimed places, before the
	// split; doubled each time up to drainMost. Its tasks wait meanwhile.
	drainWithin = 250 * time.Millisecond
	drainMost   = 2 * time.Second
	// busyFor is for how long a slot that did not drain is left alone, at least; otherwise
	// busyTimes as long as it was kept from being claimed: its tasks are late for a fifth of the
	// time at most.
	busyFor   = 500 * time.Millisecond
	busyTimes = 4
)

func (c *changer) run(ctx context.Context) {
	pause := time.Duration(0) // at first, a change may be under way
	for failures := 0; ctx.Err() == nil; {
		var tick <-chan time.Time // while nothing changes: claims and the sweep tell when something does
		if pause >= 0 {
			tick = time.After(pause)
		}
		select {
		case <-ctx.Done():
			return
		case <-c.kicks.Slots:
		case <-tick:
		}
		began := time.Now()
		changing, worked, err := c.round(ctx)
		switch {
		case errors.Is(err, store.ErrFenced):
			c.ownership.fenced(ctx)
			pause = changeEvery
		case err != nil:
			failures++
			if ctx.Err() == nil {
				c.metrics.Retries.Inc()
				c.log.Warn("changing the number of slots failed, trying again", zap.Error(err))
			}
			pause = pauseAfter(failures)
		case !changing:
			failures, pause = 0, -1
		case worked: // others need the database more
			failures, pause = 0, max(2*time.Since(began), 5*time.Millisecond)
		default:
			failures, pause = 0, changeEvery
		}
	}
}

// round looks at the slots and takes one step. worked: another may follow at once.
func (c *changer) round(ctx context.Context) (changing, worked bool, err error) {
	rows, err := c.ownership.readSlots(ctx)
	if err != nil || len(rows) == 0 {
		return true, false, err
	}
	if !rows[0].Changing() {
		c.metrics.toMove.Set(0)
		clear(c.busy)
		clear(c.waited)
		clear(c.shifts)
		return false, false, nil
	}
	if !c.trust.trusted() || c.flight.Stopping() {
		return true, false, nil
	}
	owned := map[int]int64{}
	for _, s := range c.flight.Staying() {
		owned[s.Slot] = s.Epoch
	}
	c.metrics.toMove.Set(float64(toMove(rows, owned)))
	if slot, ok := c.nextShift(rows, owned); ok {
		return true, true, c.moveOn(ctx, slot, owned[slot])
	}
	if slot, ok := c.nextSplit(rows, owned); ok {
		return true, true, c.split(ctx, slot)
	}
	if _, first := owned[0]; first && allWhole(rows) {
		done, err := c.admin.FinishSlots(ctx)
		return true, done, err
	}
	return true, false, nil
}

// toFollow tells of a slot whose tasks have not all moved.
func toFollow(r store.Slot) bool {
	return slots.Leaving(r.Slot, r.Base, r.Target) && !(r.Split() && r.Whole())
}

func allWhole(rows []store.Slot) bool { return !slices.ContainsFunc(rows, toFollow) }

// toMove counts the slots of ours that are behind.
func toMove(rows []store.Slot, owned map[int]int64) (n int) {
	for _, r := range rows {
		if _, mine := owned[r.Slot]; mine && toFollow(r) {
			n++
		}
	}
	return n
}

// nextShift returns the split slot of ours to move on next: the one that may be claimed least far.
func (c *changer) nextShift(rows []store.Slot, owned map[int]int64) (slot int, ok bool) {
	least := int64(0)
	for _, r := range rows {
		if _, mine := owned[r.Slot]; !mine || !r.Split() || r.Whole() || time.Now().Before(c.waited[r.Slot]) {
			continue
		}
		if !ok || r.Moved < least {
			slot, least, ok = r.Slot, r.Moved, true
		}
	}
	return slot, ok
}

// nextSplit returns the next slot of ours to be split, once the slots that take its tasks over have
// owners.
func (c *changer) nextSplit(rows []store.Slot, owned map[int]int64) (slot int, ok bool) {
	for _, r := range rows {
		if r.Slot < r.Count() && r.Owner == "" {
			return 0, false
		}
	}
	for _, r := range rows {
		_, mine := owned[r.Slot]
		if mine && slots.Leaving(r.Slot, r.Base, r.Target) && !r.Split() && !time.Now().Before(c.busy[r.Slot].until) {
			return r.Slot, true
		}
	}
	return 0, false
}

// split lets a slot drain, and splits it.
func (c *changer) split(ctx context.Context, slot int) error {
	delete(c.shifts, slot) // of an earlier change
	began := time.Now()
	held := c.flight.Begin(slot)
	if held == nil {
		c.later(slot, began)
		return nil
	}
	done := false
	defer func() { held.End(done) }()
	if !c.drains(ctx, held) {
		c.metrics.undrained.Inc()
		c.later(slot, began)
		return nil
	}
	bound, cancel := context.WithTimeout(ctx, answerWithin)
	moved, err := c.line.Split(bound, slot, held.Epoch, held.Claimed, c.clock.Latest(), c.flight.Waits)
	cancel()
	switch {
	case errors.Is(err, line.ErrBusy), errors.Is(err, line.ErrNotReady):
		c.later(slot, began)
		return nil
	case err != nil: // it may be split
		return err
	}
	done = true
	delete(c.busy, slot)
	c.shifts[slot] = line.NewShift(slot, held.Epoch)
	c.follow(ctx, moved)
	c.log.Info("split a slot", zap.Int("slot", slot), zap.Int("moved", len(moved.Added)), zap.Int("slots_with_timers", len(moved.Timers)))
	return c.ownership.lookAtSlots(ctx)
}

// drains waits until all claimed tasks of the slot are settled, or gives up.
func (c *changer) drains(ctx context.Context, held *flight.Splitting) bool {
	patience := min(drainWithin<<min(c.busy[held.Slot].times, 3), drainMost)
	deadline := time.Now().Add(held.UntilDrained() + patience)
	for ctx.Err() == nil && time.Now().Before(deadline) {
		drained, gone := held.Drained()
		if drained && !gone {
			return true
		}
		if gone {
			return false
		}
		c.kicks.Settle.Now()
		loop.Rest(ctx, 2*time.Millisecond)
	}
	return false
}

// later leaves a slot alone for a while, which was kept from being claimed since an instant.
func (c *changer) later(slot int, since time.Time) {
	b := c.busy[slot]
	c.busy[slot] = busySlot{b.times + 1, time.Now().Add(max(busyFor, busyTimes*time.Since(since)))}
}

// moveOn moves a page of a slot's tasks.
func (c *changer) moveOn(ctx context.Context, slot int, epoch int64) error {
	sh := c.shifts[slot]
	if sh == nil || sh.Epoch != epoch {
		sh = line.NewShift(slot, epoch)
		c.shifts[slot] = sh
	}
	bound, cancel := context.WithTimeout(ctx, answerWithin)
	moved, err := c.line.MoveOn(bound, sh, c.clock.Millis(), c.flight.Waits)
	cancel()
	if err != nil {
		return err
	}
	c.follow(ctx, moved)
	switch {
	case moved.Whole:
		delete(c.shifts, slot)
		delete(c.waited, slot)
	case sh.Waits():
		c.waited[slot] = time.Now().Add(leftEvery)
	}
	return nil
}

// follow lets the index, and the owners of slots, know of moved tasks. The index is a hint: others
// find what it does not take.
func (c *changer) follow(ctx context.Context, moved line.Moved) {
	if len(moved.Added)+len(moved.Timers) == 0 {
		return
	}
	c.metrics.movedTasks.Add(float64(len(moved.Added)))
	news := index.News{Added: moved.Added, Removed: moved.Removed, Timers: moved.Timers}
	wake := news.Wakes(c.soon())
	c.claimLoop.Woken(wake)
	c.kicks.Claim.Now()
	bound, cancel := context.WithTimeout(ctx, 500*time.Millisecond)
	defer cancel()
	err := c.index.Wake(bound, wake)
	if err == nil {
		err = c.index.Remove(bound, news.Gone(math.MaxInt64))
	}
	if err == nil {
		err = c.index.Add(bound, news.Entries(c.horizon()))
	}
	if err != nil && ctx.Err() == nil {
		c.metrics.indexErrors.Inc()
		c.log.Debug("telling the index of tasks that moved failed", zap.Error(err))
	}
}
