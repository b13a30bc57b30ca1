package dispatcher

import (
	"maps"
	"slices"
	"time"
)

// setAsideSent takes a task that is with its sender out of its place. Its answer is still waited for. inFlight.mu is held.
func (s *sender) setAsideSent(t *claimedTask) {
	s.flight.stuck[t.seq] = t
	s.flight.unsettled.ends(t)
	body := t.body // for the dead letter that it may yet become
	s.flight.setAside(t, t)
	t.body = body
}

// checkOutlets finds outlets that have not answered for long. What is with the producer cannot be called back: it leaves
// its place, so that its slot goes on, and its answer is still waited for. inFlight.mu is held.
func (s *sender) checkOutlets() {
	silent := map[outletKey]*outlet{}
	for key, g := range s.outlets.byKey {
		if g.origin {
			s.parking.putOffWaiting(g)
		}
		switch {
		case g.outage != nil && g.outage.over(time.Now()) && g.sending == 0:
			s.parking.recallParked(key)
			g.outage = nil // nothing was to be sent there for long: nobody knows
			s.outlets.forgetIdle(g)
		case g.outage == nil && g.sending > 0 && !g.origin && time.Since(g.since) >= s.cfg.UnresponsiveAfter:
			silent[key] = g
		default:
			s.outlets.forgetIdle(g) // what waited there was put off, or went elsewhere
		}
	}
	s.setAsideSlow()
	if len(silent) == 0 {
		return
	}
	for _, l := range s.flight.slots {
		for _, t := range l.open() {
			if t.status != sending || t.with == nil { // or its answer is about to be looked at
				continue
			}
			if g := silent[t.with.outletKey]; g != nil {
				home := s.outlets.rehome(t, g)
				silent[home.outletKey] = home
				s.setAsideSent(t)
			}
		}
	}
	for _, g := range silent {
		if g.sending > 0 && g.outage == nil && time.Since(g.since) >= s.cfg.UnresponsiveAfter {
			s.outlets.fallsSilent(g)
			s.parking.postponeWaiting(g)
		}
		s.outlets.forgetIdle(g)
	}
}

// Unresponsive returns the names of the topics and origins of which a part does not answer, in order. For operators.
func (d *Dispatcher) Unresponsive() []string {
	d.flight.mu.Lock()
	defer d.flight.mu.Unlock()
	names := map[string]bool{}
	for key, g := range d.sender.outlets.byKey {
		if g.outage != nil {
			names[key.topic] = true
		}
	}
	return slices.Sorted(maps.Keys(names))
}
