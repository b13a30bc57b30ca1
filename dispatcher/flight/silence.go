package flight

import (
	"maps"
	"slices"
	"time"
)

// checkOutlets finds outlets that have not answered for long. A task that is with the producer cannot be called
// back: it leaves its place, so that its slot goes on, and its answer is still waited for.
func (fl *Flight) checkOutlets() {
	silent := map[outletKey]*Outlet{}
	for key, g := range fl.outlets.byKey {
		if g.origin {
			fl.putOffWaiting(g)
		}
		if fl.fallsSilent(g) {
			silent[key] = g
		}
		fl.outlets.forgetIdle(g) // what waited there was put off, or went elsewhere
	}
	fl.setAsideSlow()
	if len(silent) == 0 {
		return
	}
	for _, l := range fl.slots {
		for _, t := range l.open() {
			if t.status != sending || t.with == nil { // or its answer is about to be looked at
				continue
			}
			if g := silent[t.with.outletKey]; g != nil {
				home := fl.outlets.rehome(t, g)
				silent[home.outletKey] = home
				fl.setAsideSent(t)
			}
		}
	}
	for _, g := range silent {
		if fl.fallsSilent(g) {
			fl.outlets.fallsSilent(g)
			fl.postponeWaiting(g)
		}
		fl.outlets.forgetIdle(g)
	}
}

// fallsSilent says that what a partition has was not answered for long.
func (fl *Flight) fallsSilent(g *Outlet) bool {
	return g.sending > 0 && !g.silent() && !g.origin && time.Since(g.since) >= fl.cfg.UnresponsiveAfter
}

// slowCall is how long a request may hold up its slot. Behind it, what was delivered since would be in doubt if the dispatcher were killed,
// and a slot that is given away would wait.
const slowCall = time.Second

// setAsideSlow takes requests that have been under way for long out of their places, so that their slots go on. Each answer is still waited
// for: it is bounded by the request's own timeout.
func (fl *Flight) setAsideSlow() {
	for t, since := range fl.underWay {
		if t.status == sending && time.Since(since) >= min(slowCall, fl.cfg.UnresponsiveAfter) && fl.stuck[t.seq] == nil && !t.slot.abandoned {
			fl.setAsideSent(t)
		}
	}
}

// setAsideSent takes a task that is with its sender out of its place. Its answer is still waited for.
func (fl *Flight) setAsideSent(t *Task) {
	fl.stuck[t.seq] = t
	fl.unsettled.ends(t)
	body := t.body // for the dead letter that it may yet become
	fl.setAside(t, t)
	t.body = body
}

// originDown puts an origin's tasks off for as long as nothing is sent to it. The callback package says when to ask it, and logs it.
func (fl *Flight) originDown(g *Outlet, rest time.Duration) {
	now := time.Now()
	if g.closed == nil {
		fl.metrics.Unresponsive.Inc()
		g.closed = newClosed(silent, now)
		defer fl.postponeWaiting(g) // until it is asked again
	}
	g.closed.first, g.closed.asked, g.closed.next, g.closed.probing = rest, 0, now.Add(rest), false
}

// Unresponsive returns the names of the topics and origins of which a part does not answer, in order. For operators.
func (fl *Flight) Unresponsive() []string {
	fl.mu.Lock()
	defer fl.mu.Unlock()
	names := map[string]bool{}
	for key, g := range fl.outlets.byKey {
		if g.silent() {
			names[key.topic] = true
		}
	}
	return slices.Sorted(maps.Keys(names))
}
