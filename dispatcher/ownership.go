package dispatcher

import (
	"context"
	"maps"
	"slices"
	"time"

	"go.uber.org/zap"

	"github.com/notyet/notyet/internal/election"
	"github.com/notyet/notyet/internal/faultpoint"
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
		d.suspended.lose()
		return false, nil
	}
	if d.suspended.active() {
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
	if missing := d.missing(assigned); len(missing) > 0 {
		if err := d.take(ctx, assigned, missing); err != nil {
			return false, err
		}
	}
	return len(d.missing(assigned)) == 0 && d.ownedSlots() == len(assigned.Slots) && d.held.count() == 0, nil
}

func (d *Dispatcher) ownedSlots() int {
	d.mu.Lock()
	defer d.mu.Unlock()
	return len(d.lines)
}

// verify ends a suspension: slots that another has taken meanwhile are abandoned, with all that is staged for them.
func (d *Dispatcher) verify(ctx context.Context) error {
	look, had := d.suspended.look(), d.had()
	bound, cancel := context.WithTimeout(ctx, answerWithin)
	defer cancel()
	slots, err := d.store.Slots(bound)
	if err != nil {
		return err
	}
	d.lose(slots, had)
	if err := d.catchUp(ctx, slots); err != nil {
		return err
	}
	d.suspended.end(look)
	d.claimKick.now()
	d.releaseKick.now()
	d.log.Info("the slots are as the election says")
	return nil
}

// had returns the lines of this moment, for lose.
func (d *Dispatcher) had() map[int]*ownedSlot {
	d.mu.Lock()
	defer d.mu.Unlock()
	return maps.Clone(d.lines)
}

// lose abandons lines that are no longer ours, as the slots were read. had are the lines from before that look: it says nothing
// about those that were taken while it was under way. A line from before it was in the database by then. Where the look shows an
// earlier epoch all the same, the database was set back, and the slot is to be taken anew.
func (d *Dispatcher) lose(slots []store.Slot, had map[int]*ownedSlot) {
	d.mu.Lock()
	defer d.mu.Unlock()
	for _, s := range slots {
		if l := d.lines[s.Slot]; l != nil && l == had[s.Slot] && (s.Epoch != l.epoch || s.Owner != d.cfg.MemberID) {
			d.abandon(l, "the database says that it is not ours")
		}
	}
}

// abandon forgets a slot that is no longer ours. mu is held.
func (d *Dispatcher) abandon(l *ownedSlot, why string) {
	l.abandoned = true
	delete(d.lines, l.number)
	d.entries -= len(l.open())
	for _, t := range l.open() {
		d.unstage(t)
		d.proofs.forget(t.seq)
	}
	d.forgetAnswered(l)
	d.metrics.abandoned.Inc()
	d.log.Warn("abandoning a slot", zap.String("because", why), zap.Int("slot", l.number), zap.Int64("epoch", l.epoch), zap.Int("tasks", len(l.open())))
	d.ownKick.now()
}

// fenced abandons slots of which the database says that they are held under another epoch.
func (d *Dispatcher) fenced(ctx context.Context) {
	d.metrics.fenced.Inc()
	d.suspended.lose()
	if err := d.verify(ctx); err != nil && ctx.Err() == nil {
		d.log.Warn("checking the slots failed", zap.Error(err))
	}
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
func (d *Dispatcher) take(ctx context.Context, assigned election.Assignment, missing []int) error {
	bound, cancel := context.WithTimeout(ctx, answerWithin)
	defer cancel()
	slots, err := d.store.Slots(bound)
	if err != nil {
		return err
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
		return nil
	}
	d.held.note(free, assigned.Epoch) // whatever comes of it
	got, err := d.store.Acquire(bound, free, assigned.Epoch, d.cfg.MemberID)
	if err != nil {
		return err
	}
	if err := faultpoint.At(faultpoint.DispatcherAcquired); err != nil {
		return err
	}
	if err := d.begin(ctx, got, assigned.Epoch); err != nil {
		return err
	}
	d.held.settle(free, assigned.Epoch)
	return nil
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
	bound, cancel := context.WithTimeout(ctx, answerWithin)
	defer cancel()
	entries, err := d.store.Entries(bound, doubts)
	if err != nil {
		return err
	}
	proven := d.proofsOf(ctx, entries)
	d.mu.Lock()
	for _, s := range got {
		d.lines[s.Slot] = &ownedSlot{number: s.Slot, epoch: epoch, claimed: s.Claimed, done: s.Done, next: never, urgent: never}
	}
	maps.Copy(d.proofs, proven)
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
