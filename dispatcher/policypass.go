package dispatcher

import (
	"time"

	"github.com/notyet/notyet/task"
)

// What the fetch and release loops ask of the policies: which task passes, waits at its target's gate, or is held.

// paused says whether a target may get nothing. inFlight.mu is held.
func (f *policies) paused(topic string) bool {
	g := f.gates[topic]
	return g != nil && g.Paused
}

// detains keeps a task that is due from being sent, if its target's policy wants that: it waits at the gate, or is
// held in its slot. inFlight.mu is held.
func (f *policies) detains(t *claimedTask, now int64) bool {
	if len(f.gates) == 0 {
		return false
	}
	g := f.gates[t.topic]
	if g == nil || g.free() {
		return false
	}
	if t.passed && !g.Paused {
		if !g.full() {
			return false
		}
		g.push(t, now) // others of its target were faster
		return true
	}
	if g.Paused || !t.called && (g.behind || len(g.waiting) >= max(g.ahead(time.Now()), 1)) {
		f.hold(g, t)
		return true
	}
	g.push(t, now)
	return true
}

// arrives notes that a task that was called back is here, whatever becomes of it: others may follow. inFlight.mu is held.
func (f *policies) arrives(t *claimedTask) {
	if len(f.gates) == 0 || t.called {
		return
	}
	if g := f.gates[t.topic]; g != nil && g.coming.has(t.seq) {
		g.coming.arrives(t.seq)
		t.called = true
	}
}

// keepsTurn gives a task that was called back, and is to be tried again, its instant from before it was held. The place to which it was called
// back is behind what was claimed then: by that, it would wait behind tasks of its target that come after it. inFlight.mu is held.
func (f *policies) keepsTurn(t *claimedTask) {
	if len(f.gates) == 0 || t.attempt == 0 || t.state == task.StateReport {
		return
	}
	if g := f.gates[t.topic]; g != nil {
		if r := g.coming.of(t, t.attempt); r != nil {
			t.at = min(t.at, r.at)
		}
	}
}

// passesOver notes that a task that was called back does not come to the gate for now. inFlight.mu is held.
func (f *policies) passesOver(topic string, seq int64) {
	if g := f.gates[topic]; g != nil {
		g.coming.arrives(seq)
	}
}

// begins and ends count what is with the producers. inFlight.mu is held.
func (f *policies) begins(topic string) {
	if f == nil || len(f.gates) == 0 {
		return
	}
	if g := f.gates[topic]; g != nil {
		g.sending++
	}
}

func (f *policies) ends(topic string) {
	if f == nil || len(f.gates) == 0 {
		return
	}
	if g := f.gates[topic]; g != nil {
		if g.sending = max(g.sending-1, 0); len(g.waiting) > 0 {
			f.kicks.release.now()
		}
	}
}

// release hands over the tasks that may pass their gates, while more is wanted. inFlight.mu is held.
func (f *policies) release(more func() bool, take func(*claimedTask)) {
	now, scarce := time.Now(), f.flight.staging.scarce()
	for _, g := range f.gates {
		for len(g.waiting) > 0 && more() {
			t := g.next(now, scarce)
			if t == nil {
				break
			}
			take(t)
			if g.behind {
				f.kick.now()
			}
		}
	}
}

// untilRelease is how long until a gate lets something through; at most a second. inFlight.mu is held.
func (f *policies) untilRelease() time.Duration {
	first, now, scarce := time.Second, time.Now(), f.flight.staging.scarce()
	for _, g := range f.gates {
		if len(g.waiting) > 0 {
			if wait, ok := g.untilNext(now, scarce); ok {
				first = min(first, wait)
			}
		}
	}
	return first
}

// diverts takes a claimed task out of the way to its body if it is to be held. One that an earlier owner may have sent goes on: the send log may know of it. inFlight.mu is held.
func (f *policies) diverts(t *claimedTask) bool {
	if len(f.lanes) == 0 || t.doubt || t.judged {
		return false
	}
	for _, g := range f.lanes[t.lane.Target()] {
		if g.Paused || g.behind && !g.coming.has(t.seq) {
			g.unread = append(g.unread, t)
			f.kick.now()
			return true
		}
	}
	return false
}
