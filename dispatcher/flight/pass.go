package flight

import (
	"time"

	"github.com/notyet/notyet/task"
)

// A claimed task asks the gate of its target before its body is read (diverts) and when it is due (detains): it passes, waits at the gate, or is
// held.

// detains keeps a task that is due from being sent, if its target's policy wants that: it waits at the gate, or is
// held in its slot.
func (f *gates) detains(t *Task, now int64) bool {
	switch g := f.byTopic[t.topic]; {
	case g == nil, g.free() && !t.slot.mayOvertake(t.at), t.passed && !g.Paused && !g.full():
		return false
	case g.Paused, !t.passed && t.slot.mayOvertake(t.at), !t.passed && (!t.wasHeld || !t.slot.leaving.IsZero()) && !f.precedes(g, t) && (g.behind || len(g.waiting) >= max(g.ahead(time.Now()), 1)):
		f.hold(g, t, t.attempt)
	default:
		g.push(t, now)
	}
	return true
}

// arrives notes that a task that was called back is here, whatever becomes of it: others may follow.
func (f *gates) arrives(t *Task) {
	if g := f.byTopic[t.topic]; g != nil && !t.wasHeld && g.coming.has(t.seq) {
		g.coming.arrives(t.seq)
		t.wasHeld = true
	}
}

// keepsTurn gives a task that was called back, and is to be tried again, its instant from before it was held. The place to which it was called
// back is behind what was claimed then: by that, it would wait behind tasks of its target that come after it.
func (f *gates) keepsTurn(t *Task) {
	if g := f.byTopic[t.topic]; g != nil && t.attempt > 0 && t.state != task.StateReport {
		if r := g.coming.of(t, t.attempt); r != nil {
			t.at = min(t.at, r.at)
		}
	}
}

// passesOver notes that a task that was called back does not come to the gate for now.
func (f *gates) passesOver(topic string, seq int64) {
	if g := f.byTopic[topic]; g != nil {
		g.coming.arrives(seq)
	}
}

// begins and ends count what is with the producers.
func (f *gates) begins(topic string) {
	if g := f.byTopic[topic]; g != nil {
		g.sending++
	}
}

func (f *gates) ends(topic string) {
	if g := f.byTopic[topic]; g != nil {
		if g.sending = max(g.sending-1, 0); len(g.waiting) > 0 {
			f.flight.kicks.Release.Now()
		}
	}
}

// release hands over the tasks that may pass their gates, while more is wanted.
func (f *gates) release(more func() bool, take func(*Task)) {
	now, scarce := time.Now(), f.flight.staging.scarce()
	for _, g := range f.byTopic {
		for len(g.waiting) > 0 && more() {
			t := g.next(now, scarce)
			if t == nil {
				break
			}
			take(t)
			if g.behind {
				f.flight.kicks.Held.Now()
			}
		}
	}
}

// untilRelease is how long until a gate lets something through; at most a second.
func (f *gates) untilRelease() time.Duration {
	first, now, scarce := time.Second, time.Now(), f.flight.staging.scarce()
	for _, g := range f.byTopic {
		if len(g.waiting) > 0 {
			if wait, ok := g.untilNext(now, scarce); ok {
				first = min(first, wait)
			}
		}
	}
	return first
}

// diverts takes a claimed task out of the way to its body if it is to be held. One that an earlier owner may have sent goes on: the send log may know of it.
func (f *gates) diverts(t *Task) bool {
	if len(f.lanes) == 0 || t.doubt || t.ungated {
		return false
	}
	for _, g := range f.lanes[t.lane.Target()] {
		if g.Paused || (g.behind || t.slot.takesOver()) && !g.coming.has(t.seq) {
			t.at = min(t.at, t.order) // until it is read: it is not released before
			g.unread.push(t)
			f.flight.kicks.Held.Now()
			return true
		}
	}
	return false
}
