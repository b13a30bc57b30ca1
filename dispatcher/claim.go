package dispatcher

import (
	"context"
	"errors"
	"slices"
	"time"

	"go.uber.org/zap"

	"github.com/notyet/notyet/internal/faultpoint"
	"github.com/notyet/notyet/internal/index"
	"github.com/notyet/notyet/store"
)

// claimer claims the near future of the owned slots. Only its own loop uses it; what it claims goes to those in flight.
type claimer struct {
	*shared
	flight    *inFlight
	trust     *trust
	ownership *ownership // asked whose the slots are when a claim is refused
	lookahead *lookahead
	index     Index
}

const (
	// sweepEvery is how often the database itself is asked what comes next, whatever the index says. The
	// question costs one look into an index for each slot.
	sweepEvery = time.Second
	// lead is how long before its due time a task is claimed that a wake told of. A claim and the fetch of a body take a few
	// milliseconds.
	lead = 25 * time.Millisecond
	// claimPause keeps a stream of tasks due at once from becoming a claim each.
	claimPause = 5 * time.Millisecond
	// overdue is how late the next task of a slot may be before the slot is claimed piece by piece.
	overdue = 2 * time.Second
)

// run claims a slot half a look-ahead before its next task is due, before a burst earlier. A claim reaches one look-ahead beyond now.
func (c *claimer) run(ctx context.Context) { c.claimRounds(ctx, c.index.Wakes(ctx)) }

func (c *claimer) claimRounds(ctx context.Context, wakes <-chan []index.SlotPos) {
	sweep := time.NewTicker(sweepEvery)
	defer sweep.Stop()
	failures := 0
	for ctx.Err() == nil {
		// The loop rests whatever makes a slot ready. Otherwise it takes a whole core when a claim does not help.
		timer := time.NewTimer(max(c.untilClaim(), claimPause))
		select {
		case <-ctx.Done():
		case places, ok := <-wakes:
			if !ok {
				wakes = nil
			}
			c.noteWakes(places)
		case <-sweep.C:
			c.lookahead.adjust(ctx)
			c.sweep(ctx)
		case <-c.kicks.sweep:
			c.sweep(ctx)
		case <-c.kicks.claim:
		case <-timer.C:
		}
		timer.Stop()
		if !c.trust.trusted() || c.stopping.Load() {
			sleep(ctx, claimPause)
			continue
		}
		claimed, err := c.claim(ctx)
		switch {
		case errors.Is(err, store.ErrFenced):
			c.ownership.fenced(ctx)
			sleep(ctx, claimPause)
		case err != nil:
			failures++
			if ctx.Err() == nil {
				c.log.Warn("claiming failed, trying again", zap.Error(err))
			}
			sleep(ctx, pauseAfter(failures))
		case claimed:
			failures = 0
			sleep(ctx, claimPause)
		}
	}
}

// noteWakes notes what the wakes tell.
func (c *claimer) noteWakes(places []index.SlotPos) {
	c.flight.mu.Lock()
	defer c.flight.mu.Unlock()
	for _, p := range places {
		switch l := c.flight.slots[p.Slot]; {
		case l == nil:
		case p.Pos == index.TimersChanged:
			c.kicks.timers.now()
		default:
			l.urgent = min(l.urgent, p.Pos)
		}
	}
}

// claimAt returns when a slot is to be claimed next.
func (c *claimer) claimAt(l *ownedSlot) int64 {
	if !l.leaving.IsZero() || l.claiming {
		return never
	}
	at := int64(never)
	if l.next != never {
		at = l.next - c.lookahead.ahead.Load() + c.cfg.LookAhead.Milliseconds()/2
	}
	if l.urgent != never {
		at = min(at, l.urgent-lead.Milliseconds())
	}
	return at
}

func (c *claimer) untilClaim() time.Duration {
	c.flight.mu.Lock()
	defer c.flight.mu.Unlock()
	if c.flight.entries >= c.maxEntries() {
		return sweepEvery // settling kicks
	}
	at := int64(never)
	for _, l := range c.flight.slots {
		at = min(at, c.claimAt(l))
	}
	return time.Duration(min(max(at-c.clock.Millis(), 0), sweepEvery.Milliseconds())) * time.Millisecond
}

// maxEntries bounds the tasks in memory that have no body yet, at about 80 bytes each. One millisecond's tasks are
// claimed together, so a single claim may exceed it.
func (c *claimer) maxEntries() int { return 30 * c.cfg.StageTasks }

// claim claims what is due to be claimed, and tells whether there was anything.
func (c *claimer) claim(ctx context.Context) (bool, error) {
	ready, room := c.beginClaim()
	if len(ready) == 0 {
		return false, nil
	}
	defer c.flight.endClaim(ready)
	groups := map[claimGroup][]claimable{}
	for _, l := range ready {
		if l.behind { // an outage has passed: a bite at a time
			nth, more, err := c.nth(ctx, store.Range{Slot: l.number, From: l.claimed, To: l.to}, max(room/len(ready), 1000))
			if err != nil {
				return false, err
			}
			if more {
				l.to = nth
			}
		}
		g := claimGroup{l.epoch, l.to}
		groups[g] = append(groups[g], l)
	}
	for g, together := range groups {
		if err := c.claimTogether(ctx, together, g); err != nil {
			return false, err
		}
	}
	return true, nil
}

func (c *claimer) nth(ctx context.Context, r store.Range, n int) (int64, bool, error) {
	bound, cancel := context.WithTimeout(ctx, answerWithin)
	defer cancel()
	return c.store.Nth(bound, r, n)
}

// claimable is a slot that is being claimed. Settling moves the slot's next, so what the claim needs is noted under the lock.
type claimable struct {
	*ownedSlot
	to     int64
	behind bool
}

type claimGroup struct{ epoch, to int64 }

// claims says whether anything is claimed at present. inFlight.mu is held.
func (c *claimer) claims() bool { return c.trust.trusted() && c.flight.entries < c.maxEntries() }

// beginClaim decides which slots are claimed now, and how far: always further than they are. Until endClaim they are not given back,
// because the claim itself happens later, without the lock. room is how many tasks may still enter.
func (c *claimer) beginClaim() (ready []claimable, room int) {
	now := c.clock.Millis()
	c.flight.mu.Lock()
	defer c.flight.mu.Unlock()
	if room = c.maxEntries() - c.flight.entries; room <= 0 {
		return nil, 0
	}
	ahead, trigger := now+c.lookahead.ahead.Load(), false
	for _, l := range c.flight.slots {
		at := c.claimAt(l)
		trigger = trigger || at <= now
		if at <= now || at != never && l.next <= ahead {
			ready = append(ready, claimable{ownedSlot: l, to: l.reach(ahead), behind: l.liesBehind(now - overdue.Milliseconds())})
		}
	}
	if !trigger {
		return nil, room
	}
	for _, l := range ready {
		l.claiming = true
	}
	slices.SortFunc(ready, func(a, b claimable) int { return a.number - b.number })
	return ready, room
}

func rangesOf(ready []claimable) []store.Range {
	out := make([]store.Range, len(ready))
	for i, l := range ready {
		out[i] = store.Range{Slot: l.number, From: l.claimed, To: l.to}
	}
	return out
}

// claimTogether claims first and reads afterwards. What was written before the claim is there to be read, and what comes later is
// placed behind it.
func (c *claimer) claimTogether(ctx context.Context, ready []claimable, g claimGroup) error {
	slots, from := make([]int, len(ready)), make([]int64, len(ready))
	for i, l := range ready {
		slots[i], from[i] = l.number, l.claimed
	}
	began := time.Now()
	bound, cancel := context.WithTimeout(ctx, answerWithin)
	defer cancel()
	err := c.store.Claim(bound, slots, from, g.epoch, g.to)
	c.writes.noteWrite(ctx, err)
	if err != nil {
		return err
	}
	if err := faultpoint.At(faultpoint.DispatcherClaimed); err != nil {
		return err
	}
	entries, err := c.readClaimed(ctx, ready)
	if err != nil {
		return err
	}
	c.metrics.claims.Inc()
	c.metrics.claimTime.Observe(time.Since(began).Seconds())
	c.flight.takeIn(ready, entries)
	if len(entries) == 0 {
		c.kicks.settle.now()
	}
	c.askNext(ctx, ready, slots, g.to)
	return nil
}

// readClaimed reads what has been claimed, again and again until it is done: claimed has moved, so the read must follow. It gives
// up when none of the slots is ours any more.
func (c *claimer) readClaimed(ctx context.Context, ready []claimable) ([]store.Entry, error) {
	ranges := rangesOf(ready)
	for failures := 0; ; failures++ {
		bound, cancel := context.WithTimeout(ctx, readWithin(failures))
		entries, err := c.store.Claimed(bound, ranges)
		cancel()
		if err == nil || c.flight.allAbandoned(ready) {
			return entries, err
		}
		c.log.Warn("reading a claimed range failed, trying again", zap.Error(err))
		if sleep(ctx, pauseAfter(failures+1)); ctx.Err() != nil {
			return nil, err
		}
	}
}

// askNext asks the index for the slots' next tasks, or the database if the index does not answer.
func (c *claimer) askNext(ctx context.Context, ready []claimable, slots []int, from int64) {
	places := make([]index.SlotPos, len(ready))
	for i, l := range ready {
		places[i] = index.SlotPos{Slot: l.number, Pos: from}
	}
	bound, cancel := context.WithTimeout(ctx, 200*time.Millisecond)
	next, err := c.index.Next(bound, places)
	cancel()
	if err != nil {
		c.metrics.indexErrors.Inc()
		bound, cancel := context.WithTimeout(ctx, answerWithin)
		_, fromStore, err := c.store.Next(bound, slots)
		cancel()
		if err != nil {
			return // the sweep asks again
		}
		next = append(next, fromStore...)
	}
	c.flight.mu.Lock()
	defer c.flight.mu.Unlock()
	for _, n := range next {
		if l := c.flight.slots[n.Slot]; l != nil && n.Pos > l.claimed {
			l.next = min(l.next, n.Pos)
		}
	}
}
