package dispatcher

import (
	"context"
	"slices"
	"time"

	"go.uber.org/zap"

	"github.com/notyet/notyet/internal/election"
	"github.com/notyet/notyet/internal/faultpoint"
	"github.com/notyet/notyet/store"
)

// answerWithin bounds each call that takes, claims or gives back slots. It is longer than the database lets a statement wait for
// a lock.
const answerWithin = 15 * time.Second

// lastSend is how long a slot that is to be given away goes on sending. What is sent later could not be settled before the slot goes, and
// its next owner would send it again.
func (c Config) lastSend() time.Duration { return c.DrainTimeout - min(c.DrainTimeout/8, time.Second) }

// giveAway gives back slots that are assigned elsewhere. They claim no more, so they drain within the look-ahead; one that
// does not is given back all the same, and its next owner sends again what is in doubt.
func (o *ownership) giveAway(ctx context.Context, assigned election.Assignment) error {
	for epoch, slots := range o.leavers(assigned) {
		if err := faultpoint.At(faultpoint.DispatcherDrained); err != nil {
			return err
		}
		if err := o.release(ctx, slots, epoch); err != nil {
			return err
		}
	}
	for epoch, slots := range o.strays.without(assigned.Slots) {
		bound, cancel := context.WithTimeout(ctx, answerWithin)
		err := o.store.Abandon(bound, slots, epoch)
		cancel()
		if err != nil {
			return err
		}
		o.strays.settle(slots, epoch)
		o.log.Info("gave slots away that may hold tasks in doubt", zap.Ints("slots", slots), zap.Int64("epoch", epoch))
	}
	return nil
}

// leavers returns, by epoch, the slots that have drained. One that takes too long is abandoned here first, and then in the
// database: from then on another may send what it holds.
func (o *ownership) leavers(assigned election.Assignment) map[int64][]int {
	drained := map[int64][]int{}
	o.flight.mu.Lock()
	defer o.flight.mu.Unlock()
	ending := o.flight.endingLate()
	for _, l := range o.flight.slots {
		if _, mine := slices.BinarySearch(assigned.Slots, l.number); mine && !l.releasing {
			if !l.leaving.IsZero() {
				o.stays(l)
			}
			continue
		}
		if l.leaving.IsZero() {
			l.leaving = time.Now()
		}
		switch {
		case l.drained() && !ending[l.number]:
			l.releasing = true
			drained[l.epoch] = append(drained[l.epoch], l.number)
		case l.leavingFor() <= o.cfg.DrainTimeout/2:
		case l.leavingFor() <= o.cfg.DrainTimeout:
			o.flight.leaveBehind(l)
		default:
			o.strays.note([]int{l.number}, l.epoch)
			o.flight.abandon(l, "it did not drain in time")
		}
	}
	return drained
}

// stays keeps a slot that was to leave. What passed it over meanwhile looks again. inFlight.mu is held.
func (o *ownership) stays(l *ownedSlot) {
	l.leaving = time.Time{}
	o.flight.arrived++
	o.kicks.claim.now()
	o.kicks.timers.now()
}

// release gives drained slots back. After an error they may be given back or not, so they stay as they are until it is clear,
// even if they are assigned to this process again.
func (o *ownership) release(ctx context.Context, drained []int, epoch int64) error {
	bound, cancel := context.WithTimeout(ctx, answerWithin)
	defer cancel()
	kept, err := o.store.Release(bound, drained, epoch)
	if err != nil {
		return err
	}
	gone := slices.DeleteFunc(slices.Clone(drained), func(slot int) bool { return slices.Contains(kept, slot) })
	o.flight.mu.Lock()
	for _, slot := range drained {
		if l := o.flight.slots[slot]; l != nil && l.epoch == epoch {
			if slices.Contains(gone, slot) {
				delete(o.flight.slots, slot)
				o.flight.forgetAnswered(l)
			} else {
				l.releasing = false
			}
		}
	}
	o.flight.mu.Unlock()
	if len(gone) > 0 {
		o.log.Info("gave slots away", zap.Ints("slots", gone))
	}
	if len(kept) == 0 {
		return nil
	}
	slots, err := o.store.Slots(bound)
	if err != nil {
		return err
	}
	return o.catchUp(ctx, slots)
}

// catchUp takes in what the database calls claimed and the slot here does not know of: the reply to a claim was lost.
func (o *ownership) catchUp(ctx context.Context, slots []store.Slot) error {
	var behind []claimable
	o.flight.mu.Lock()
	for _, s := range slots {
		if l := o.flight.slots[s.Slot]; l != nil && l.epoch == s.Epoch && l.claimed < s.Claimed && !l.claiming {
			l.claiming = true
			behind = append(behind, claimable{ownedSlot: l, to: s.Claimed})
		}
	}
	o.flight.mu.Unlock()
	if len(behind) == 0 {
		return nil
	}
	defer o.flight.endClaim(behind)
	entries, err := o.readEntries(ctx, o.store.Claimed, rangesOf(behind))
	if err != nil {
		return err
	}
	o.flight.takeIn(behind, entries)
	o.log.Info("added the tasks of a claim whose reply was lost", zap.Int("slots", len(behind)), zap.Int("tasks", len(entries)))
	return nil
}

// endingLate returns the slots with tasks that were set aside, have been answered since, and whose ends are not stored. They are out of
// their slots, which may have drained. Without their ends, the next owner sends them again. inFlight.mu is held.
func (fl *inFlight) endingLate() map[int]bool {
	slots := map[int]bool{}
	for _, t := range fl.stuck {
		if t.answered {
			slots[t.slot.number] = true
		}
	}
	return slots
}
