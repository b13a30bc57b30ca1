package flight

import (
	"time"

	"github.com/notyet/notyet/internal/slots"
	"github.com/notyet/notyet/store"
	"github.com/notyet/notyet/store/line"
	"github.com/notyet/notyet/task"
)

// While the number of slots changes, each owner splits its slots, and the tasks go to where they
// belong (docs/design/slots.md). Neither a split slot nor one that takes tasks over is claimed, or
// has held tasks called back, beyond the place up to which all tasks are where they belong.

// raiseEvery is how often held tasks of a slot may be called back further while others are still to
// come: each time, all gates look anew from there.
const raiseEvery = time.Second

// SlotsSeen takes all slots as the database has them: how far owned ones may be claimed. A caller
// takes in one reading before the next.
func (fl Owning) SlotsSeen(rows []store.Slot) {
	claimTo, callTo := int64(never), int64(never) // of slots that take tasks over
	for _, r := range rows {
		if r.Split() {
			claimTo, callTo = min(claimTo, r.Moved), min(callTo, r.MovedHeld)
		}
	}
	fl.mu.Lock()
	defer fl.mu.Unlock()
	risen := int64(never) // held tasks beyond this place may be called back now
	fewer := false        // some may not any more
	for _, r := range rows {
		l := fl.slots[r.Slot]
		if l == nil || r.Epoch != l.epoch {
			continue
		}
		if r.Turn < l.turn { // the database was set back: the sweep abandons the slot
			fl.kicks.Sweep.Now()
			continue
		}
		turned := r.Turn > l.turn
		l.turn = r.Turn
		callMost := int64(never)
		switch {
		case r.Split():
			l.claimMost, callMost = r.Moved, r.MovedHeld
		case r.Changing() && !slots.Leaving(r.Slot, r.Base, r.Target):
			l.claimMost, callMost = claimTo, callTo
		default:
			l.claimMost = never
		}
		switch {
		case callMost < l.callMost:
			l.callMost, fewer = callMost, true
		case callMost > l.callMost && (callMost == never || time.Since(l.raised) >= raiseEvery):
			if task.IsHeld(callMost) {
				risen, l.raised = min(risen, l.callMost), time.Now()
			}
			l.callMost = callMost
		}
		if turned && task.IsHeld(l.callMost) { // a slot was split: what it has moved here until now may stand anywhere up to there
			risen = 0
		}
	}
	if risen < never {
		fl.gates.lookAgain(line.HeldPlace{Pos: risen})
	}
	if fewer {
		for _, g := range fl.gates.byTopic {
			fl.gates.holdBack(g, func(t *Task) bool { return t.slot.mayOvertake(t.at) })
		}
	}
	fl.kicks.Claim.Now()
}

// Changing is for the loop that changes the number of slots.
type Changing struct{ Owned }

// Splitting is a slot about to be split, and not claimed until End, to let it drain.
type Splitting struct {
	*machine
	Slot    int
	Epoch   int64
	Claimed int64
	slot    *ownedSlot
}

// Begin keeps a slot from being claimed; nil: the slot would take too long to drain now.
func (fl Changing) Begin(slot int) *Splitting {
	now := fl.clock.Millis()
	fl.mu.Lock()
	defer fl.mu.Unlock()
	l := fl.slots[slot]
	if l == nil || l.claiming || !l.leaving.IsZero() || l.claimMost != never || l.claimed > now+2*fl.cfg.LookAhead.Milliseconds() {
		return nil
	}
	l.claiming = true
	return &Splitting{machine: fl.machine, Slot: slot, Epoch: l.epoch, slot: l}
}

// Drained tells whether all claimed tasks of the slot are settled. gone: the slot is not ours any
// more, and never drains.
func (s *Splitting) Drained() (drained, gone bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	l := s.slot
	s.Claimed = l.claimed
	return l.done == l.claimed && l.head == len(l.tasks), l.abandoned || !l.leaving.IsZero()
}

// UntilDrained is how long the slot takes to drain, at least: the claimed tasks fall due first.
func (s *Splitting) UntilDrained() time.Duration {
	now := s.clock.Millis()
	s.mu.Lock()
	defer s.mu.Unlock()
	open := s.slot.open()
	if len(open) == 0 {
		return 0
	}
	return time.Duration(max(open[len(open)-1].pos-now, 0)) * time.Millisecond
}

// End lets the slot be claimed again. Tasks put off in a slot that was split may belong to another
// one now: they are not called back from here, and come when their time is over.
func (s *Splitting) End(split bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.slot.claiming = false
	if split {
		s.forgetParked(s.slot)
	}
	s.kicks.Claim.Now()
}

// Waits tells whether the producer may still hold a task: the answer would be about the task at its
// present place.
func (fl Changing) Waits(seq int64) bool {
	fl.mu.Lock()
	defer fl.mu.Unlock()
	return fl.stuck[seq] != nil
}
