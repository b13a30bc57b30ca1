package flight

import "time"

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
