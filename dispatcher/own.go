package dispatcher

import (
	"context"
	"slices"
	"time"

	"go.uber.org/zap"

	"github.com/notyet/notyet/internal/election"
	"github.com/notyet/notyet/internal/faultpoint"
	"github.com/notyet/notyet/internal/sendlog"
	"github.com/notyet/notyet/store"
)

// ownLoop keeps the owned slots in step with the assignment: it gives away what is assigned to others, once drained, and
// takes what is assigned here, once its owner has let go of it or is gone.
func (d *Dispatcher) ownLoop(ctx context.Context) {
	const again = 50 * time.Millisecond // while slots are waited for
	failures := 0
	for ctx.Err() == nil {
		pause := time.Second
		switch settled, err := d.own(ctx); {
		case err != nil:
			failures++
			if ctx.Err() == nil {
				d.log.Warn("taking slots failed, trying again", zap.Error(err))
			}
			pause = pauseAfter(failures)
		case !settled:
			failures, pause = 0, again
		default:
			failures = 0
		}
		select {
		case <-ctx.Done():
		case <-d.members.Watch():
		case <-d.ownKick:
		case <-time.After(pause):
		}
	}
}

// own answers whether ownership is as assigned.
func (d *Dispatcher) own(ctx context.Context) (bool, error) {
	if !d.members.Trusted() {
		d.suspended.Store(true)
		return false, nil
	}
	if d.suspended.Load() {
		if err := d.verify(ctx); err != nil {
			return false, err
		}
	}
	assigned := d.members.Current()
	if d.stopping.Load() {
		assigned.Slots = nil
	}
	if err := d.giveAway(ctx, assigned); err != nil {
		return false, err
	}
	missing := d.missing(assigned)
	if len(missing) == 0 {
		d.mu.Lock()
		defer d.mu.Unlock()
		return len(d.lines) == len(assigned.Slots), nil
	}
	return d.take(ctx, assigned, missing)
}

// verify ends a suspension: slots that another has taken meanwhile are abandoned, with all that is staged for them.
func (d *Dispatcher) verify(ctx context.Context) error {
	slots, err := d.store.Slots(ctx)
	if err != nil {
		return err
	}
	d.mu.Lock()
	for _, s := range slots {
		if l := d.lines[s.Slot]; l != nil && l.epoch != s.Epoch {
			d.abandon(l)
		}
	}
	d.mu.Unlock()
	d.suspended.Store(false)
	d.claimKick.now()
	d.releaseKick.now()
	d.log.Info("trusting the election again")
	return nil
}

// abandon forgets a slot that is no longer ours. mu is held.
func (d *Dispatcher) abandon(l *line) {
	l.abandoned = true
	delete(d.lines, l.slot)
	d.entries -= len(l.open())
	for _, t := range l.open() {
		if t.status == staged || t.status == sending {
			d.unstage(t)
		}
	}
	d.metrics.abandoned.Inc()
	d.log.Warn("abandoning a slot that has another owner", zap.Int("slot", l.slot), zap.Int64("epoch", l.epoch), zap.Int("tasks", len(l.open())))
	d.ownKick.now()
}

// fenced abandons slots of which the database says that they are held under another epoch.
func (d *Dispatcher) fenced(ctx context.Context) {
	d.metrics.fenced.Inc()
	d.suspended.Store(true)
	if err := d.verify(ctx); err != nil && ctx.Err() == nil {
		d.log.Warn("checking the slots failed", zap.Error(err))
	}
}

// giveAway releases slots that are assigned elsewhere. They claim no more, so they drain within the look-ahead; one that
// does not is released all the same, and its next owner sends again what is in doubt.
func (d *Dispatcher) giveAway(ctx context.Context, assigned election.Assignment) error {
	byEpoch := map[int64][]int{}
	d.mu.Lock()
	for _, l := range d.lines {
		if _, mine := slices.BinarySearch(assigned.Slots, l.slot); mine {
			l.leaving = time.Time{}
			continue
		}
		if l.leaving.IsZero() {
			l.leaving = time.Now()
		}
		if l.drained() || time.Since(l.leaving) > d.cfg.DrainTimeout {
			byEpoch[l.epoch] = append(byEpoch[l.epoch], l.slot)
		}
	}
	d.mu.Unlock()
	for epoch, slots := range byEpoch {
		if err := faultpoint.At(faultpoint.DispatcherDrained); err != nil {
			return err
		}
		if err := d.store.Release(ctx, slots, epoch); err != nil {
			return err
		}
		d.mu.Lock()
		for _, slot := range slots {
			if l := d.lines[slot]; l.drained() {
				delete(d.lines, slot)
			} else {
				d.abandon(l)
			}
		}
		d.mu.Unlock()
		d.log.Info("gave slots away", zap.Ints("slots", slots))
	}
	return nil
}

func (d *Dispatcher) missing(assigned election.Assignment) []int {
	d.mu.Lock()
	defer d.mu.Unlock()
	var out []int
	for _, slot := range assigned.Slots {
		if d.lines[slot] == nil {
			out = append(out, slot)
		}
	}
	return out
}

// take acquires the missing slots that are free: released, or their owner is gone from the election, or it was this
// process. The owner of the others is given the time to drain, and is fenced when it does not.
func (d *Dispatcher) take(ctx context.Context, assigned election.Assignment, missing []int) (bool, error) {
	slots, err := d.store.Slots(ctx)
	if err != nil {
		return false, err
	}
	var free []int
	for _, s := range slots {
		if _, wanted := slices.BinarySearch(missing, s.Slot); !wanted {
			continue
		}
		overdue := d.waited(s.Slot, assigned.Epoch) > d.cfg.DrainTimeout+5*time.Second
		if s.Owner == "" || s.Owner == d.cfg.MemberID || !d.members.Alive(s.Owner) || overdue {
			free = append(free, s.Slot)
		}
	}
	if len(free) == 0 {
		return false, nil
	}
	got, err := d.store.Acquire(ctx, free, assigned.Epoch, d.cfg.MemberID)
	if err != nil {
		return false, err
	}
	if err := faultpoint.At(faultpoint.DispatcherAcquired); err != nil {
		return false, err
	}
	if err := d.begin(ctx, got, assigned.Epoch); err != nil {
		return false, err
	}
	return len(got) == len(missing), nil
}

// waited answers how long a slot has been waited for under an assignment.
func (d *Dispatcher) waited(slot int, epoch int64) time.Duration {
	key := [2]int64{int64(slot), epoch}
	if len(d.waits) > 10_000 { // of assignments long past
		clear(d.waits)
	}
	since, ok := d.waits[key]
	if !ok {
		since = time.Now()
		d.waits[key] = since
	}
	return time.Since(since)
}

// begin starts on acquired slots. What the previous owner claimed and did not close is in doubt: it is sent again, with the
// same id and attempt, less what the send log here proves acknowledged.
func (d *Dispatcher) begin(ctx context.Context, got []store.Slot, epoch int64) error {
	var doubts []store.Range
	for _, s := range got {
		if s.Done < s.Claimed {
			doubts = append(doubts, store.Range{Slot: s.Slot, From: s.Done, To: s.Claimed})
		}
	}
	entries, err := d.store.Entries(ctx, doubts)
	if err != nil {
		return err
	}
	var acked map[sendlog.Key]sendlog.Outcome
	if len(entries) > 0 {
		if acked, err = d.sent.Acked(ctx, d.clock.Now().Add(-time.Hour)); err != nil {
			d.log.Warn("reading the send log failed: all that is in doubt is sent again", zap.Error(err))
		}
	}
	d.mu.Lock()
	for _, s := range got {
		d.lines[s.Slot] = &line{slot: s.Slot, epoch: epoch, claimed: s.Claimed, done: s.Done, next: never, urgent: never}
	}
	if len(entries) > 0 {
		d.acked = acked
	}
	d.enter(d.lines, entries, true)
	d.mu.Unlock()
	slots := make([]int, len(got))
	for i, s := range got {
		slots[i] = s.Slot
	}
	d.metrics.doubts.Add(float64(len(entries)))
	d.log.Info("took slots", zap.Ints("slots", slots), zap.Int64("epoch", epoch), zap.Int("in_doubt", len(entries)))
	d.sweepKick.now()
	d.settleKick.now()
	return nil
}
