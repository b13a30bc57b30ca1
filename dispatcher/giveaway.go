package dispatcher

import (
	"context"
	"slices"
	"sync"
	"time"

	"go.uber.org/zap"

	"github.com/notyet/notyet/internal/election"
	"github.com/notyet/notyet/internal/faultpoint"
	"github.com/notyet/notyet/store"
	"github.com/notyet/notyet/task"
)

// answerWithin bounds each call that takes, claims or gives back slots. It is longer than the database lets a statement wait for
// a lock.
const answerWithin = 15 * time.Second

// holdings are slots that the database may call ours and that have no line: taken and not begun, since the call failed on the
// way, or abandoned because they did not drain. Each is begun or given back in the end, or its next owner would wait for us.
type holdings struct {
	mu     sync.Mutex
	epochs map[int]int64 // by slot
}

func (h *holdings) note(slots []int, epoch int64) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.epochs == nil {
		h.epochs = map[int]int64{}
	}
	for _, slot := range slots {
		h.epochs[slot] = epoch
	}
}

// settle forgets slots whose fate under an epoch is clear.
func (h *holdings) settle(slots []int, epoch int64) {
	h.mu.Lock()
	defer h.mu.Unlock()
	for _, slot := range slots {
		if h.epochs[slot] == epoch {
			delete(h.epochs, slot)
		}
	}
}

// without returns, by epoch, the slots that are not among the assigned ones.
func (h *holdings) without(assigned []int) map[int64][]int {
	h.mu.Lock()
	defer h.mu.Unlock()
	out := map[int64][]int{}
	for slot, epoch := range h.epochs {
		if _, mine := slices.BinarySearch(assigned, slot); !mine {
			out[epoch] = append(out[epoch], slot)
		}
	}
	return out
}

func (h *holdings) count() int {
	h.mu.Lock()
	defer h.mu.Unlock()
	return len(h.epochs)
}

// giveAway gives back slots that are assigned elsewhere. They claim no more, so they drain within the look-ahead; one that
// does not is given back all the same, and its next owner sends again what is in doubt.
func (d *Dispatcher) giveAway(ctx context.Context, assigned election.Assignment) error {
	for epoch, slots := range d.leavers(assigned) {
		if err := faultpoint.At(faultpoint.DispatcherDrained); err != nil {
			return err
		}
		if err := d.release(ctx, slots, epoch); err != nil {
			return err
		}
	}
	for epoch, slots := range d.held.without(assigned.Slots) {
		bound, cancel := context.WithTimeout(ctx, answerWithin)
		err := d.store.Abandon(bound, slots, epoch)
		cancel()
		if err != nil {
			return err
		}
		d.held.settle(slots, epoch)
		d.log.Info("gave slots away that may hold tasks in doubt", zap.Ints("slots", slots), zap.Int64("epoch", epoch))
	}
	return nil
}

// leavers returns, by epoch, the slots that have drained. One that takes too long is abandoned here first, and then in the
// database: from then on another may send what it holds.
func (d *Dispatcher) leavers(assigned election.Assignment) map[int64][]int {
	drained := map[int64][]int{}
	d.mu.Lock()
	defer d.mu.Unlock()
	ending := d.endingLate()
	for _, l := range d.lines {
		if _, mine := slices.BinarySearch(assigned.Slots, l.number); mine && !l.releasing {
			l.leaving = time.Time{}
			continue
		}
		if l.leaving.IsZero() {
			l.leaving = time.Now()
		}
		switch {
		case l.drained() && !ending[l.number]:
			l.releasing = true
			drained[l.epoch] = append(drained[l.epoch], l.number)
		case time.Since(l.leaving) <= d.cfg.DrainTimeout/2:
		case time.Since(l.leaving) <= d.cfg.DrainTimeout:
			d.settleApart(l)
		default:
			d.held.note([]int{l.number}, l.epoch)
			d.abandon(l, "it did not drain in time")
		}
	}
	return drained
}

// endingLate returns the slots with tasks that were set aside, have been answered since, and whose ends are not stored. They are out of
// their lines, which may have drained; without their ends, the next owner would send them again. mu is held.
func (d *Dispatcher) endingLate() map[int]bool {
	slots := map[int]bool{}
	for _, t := range d.stuck {
		if t.answered {
			slots[t.slot.number] = true
		}
	}
	return slots
}

// settleApart ends, each by itself, the delivered tasks behind one that holds done back - with the producer, whose target does
// not answer; not read yet - and may do so longer than the line stays: else its next owner would send them again. A settlement
// under way may count those that it can close, and only those. mu is held.
func (d *Dispatcher) settleApart(l *ownedSlot) {
	to, _ := l.closable()
	for _, t := range l.open() {
		if t.status == settled && t.pos > to {
			d.leave(t, transition{Transition: store.Transition{State: task.StateSucceeded, Attempt: t.attempt + 1, Lane: t.lane}})
		}
	}
}

// release gives drained slots back. After an error they may be given back or not, so they stay as they are until it is clear,
// even if they are assigned to this process again.
func (d *Dispatcher) release(ctx context.Context, drained []int, epoch int64) error {
	bound, cancel := context.WithTimeout(ctx, answerWithin)
	defer cancel()
	kept, err := d.store.Release(bound, drained, epoch)
	if err != nil {
		return err
	}
	gone := slices.DeleteFunc(slices.Clone(drained), func(slot int) bool { return slices.Contains(kept, slot) })
	d.mu.Lock()
	for _, slot := range drained {
		if l := d.lines[slot]; l != nil && l.epoch == epoch {
			if slices.Contains(gone, slot) {
				delete(d.lines, slot)
				d.forgetAnswered(l)
			} else {
				l.releasing = false
			}
		}
	}
	d.mu.Unlock()
	if len(gone) > 0 {
		d.log.Info("gave slots away", zap.Ints("slots", gone))
	}
	if len(kept) == 0 {
		return nil
	}
	slots, err := d.store.Slots(bound)
	if err != nil {
		return err
	}
	return d.catchUp(ctx, slots)
}

// catchUp takes in what the database calls claimed and its line does not know of: the reply to a claim was lost.
func (d *Dispatcher) catchUp(ctx context.Context, slots []store.Slot) error {
	var behind []claimable
	d.mu.Lock()
	for _, s := range slots {
		if l := d.lines[s.Slot]; l != nil && l.epoch == s.Epoch && l.claimed < s.Claimed && !l.claiming {
			l.claiming = true
			behind = append(behind, claimable{ownedSlot: l, to: s.Claimed})
		}
	}
	d.mu.Unlock()
	if len(behind) == 0 {
		return nil
	}
	defer d.endClaim(behind)
	bound, cancel := context.WithTimeout(ctx, answerWithin)
	defer cancel()
	entries, err := d.store.Entries(bound, rangesOf(behind))
	if err != nil {
		return err
	}
	d.takeIn(behind, entries)
	d.log.Info("took in what a claim without a reply had claimed", zap.Int("slots", len(behind)), zap.Int("tasks", len(entries)))
	return nil
}
