package flight

import (
	"slices"
	"time"

	"go.uber.org/zap"

	"github.com/notyet/notyet/store/admin"
	"github.com/notyet/notyet/store/line"
	"github.com/notyet/notyet/task"
)

// Policies is for the loops that keep policies in force.
type Policies struct{ *machine }

// Apply puts policies in force, and limits of all dispatchers together for our part of the slots.
func (fl Policies) Apply(all []admin.Policy, key task.LaneKey) {
	fl.mu.Lock()
	defer fl.mu.Unlock()
	fl.gates.key = key
	fl.gates.apply(all)
	fl.outlets.limitCalls(fl.gates.part())
}

// lookAgain has all gates look anew at held tasks behind a place: some that were passed over, or
// not there, may be called back now.
func (f *gates) lookAgain(from line.HeldPlace) {
	f.anew++
	for _, g := range f.byTopic {
		g.behind, g.found = true, true
		for _, place := range []*line.HeldPlace{&g.after, &g.back} {
			if from.Compare(*place) < 0 {
				*place = from
			}
		}
	}
	f.flight.kicks.Held.Now()
}

// leaves holds the tasks at gates of a slot that is to leave: tasks called back before them, and
// not here, go with the slot.
func (f *gates) leaves(l *ownedSlot) {
	for _, g := range f.byTopic {
		if g.coming.count() > 0 {
			g.behind, g.found = true, true
		}
		f.holdBack(g, func(t *Task) bool { return g.behind && t.slot == l })
	}
}

// part is the owned part of the slots.
func (f *gates) part() float64 {
	return min(float64(len(f.flight.slots))/float64(max(f.slots, 1)), 1)
}

// apply puts policies in force.
func (f *gates) apply(all []admin.Policy) {
	if len(all) == 0 && len(f.byTopic) == 0 {
		return
	}
	share := f.part()
	said := make(map[string]bool, len(all))
	for _, p := range all {
		said[p.Topic] = true
		g := f.byTopic[p.Topic]
		if g == nil {
			g = f.open(p.Topic)
		}
		before := g.Policy
		g.set(p, share)
		if before.Changed != p.Changed {
			f.flight.log.Info("a target has another policy", zap.String("topic", p.Topic), zap.Bool("paused", p.Paused), zap.Float64("rate", p.Rate), zap.Int("max_in_flight", p.MaxInFlight))
			if p.Paused {
				f.close(g)
			}
		}
	}
	for topic, g := range f.byTopic {
		if !said[topic] { // its row was deleted: nothing of it was held
			g.set(admin.Policy{Topic: topic}, share)
			if g.free() && g.sending == 0 {
				f.forget(g)
			}
		}
	}
	f.flight.kicks.Held.Now()
	f.flight.kicks.Release.Now()
}

// open makes the gate of a target.
func (f *gates) open(topic string) *Gate {
	g := newGate(topic, f.flight.cfg.StageTasks)
	f.byTopic[topic] = g
	for _, target := range f.key.Targets(topic) {
		f.lanes[target] = append(f.lanes[target], g)
	}
	for _, t := range f.flight.outlets.byKey {
		if t.topic == topic {
			g.sending += t.sending
		}
	}
	return g
}

func (f *gates) forget(g *Gate) {
	delete(f.byTopic, g.Topic)
	for _, target := range f.key.Targets(g.Topic) {
		if f.lanes[target] = slices.DeleteFunc(f.lanes[target], func(o *Gate) bool { return o == g }); len(f.lanes[target]) == 0 {
			delete(f.lanes, target)
		}
	}
}

// close sends the tasks at a gate, or behind it for a partition, to held places.
func (f *gates) close(g *Gate) {
	f.holdBack(g, func(*Task) bool { return true })
	for _, o := range f.flight.outlets.byKey {
		if o.topic != g.Topic {
			continue
		}
		for _, t := range o.waiting {
			f.hold(g, t, t.attempt)
		}
		f.flight.outlets.waits(o, nil)
	}
}

// A claimed task asks the gate of its target before its body is read (diverts) and when due
// (judge): the task passes, waits at the gate, or is held.

// judge gives the verdict of a target's policy on a due task.
func (f *gates) judge(t *Task, now time.Time) verdict {
	switch g := f.byTopic[t.topic]; {
	case g == nil, g.free() && !t.slot.mayOvertake(t.at), t.passed && !g.Paused && !g.full():
		return sends
	case g.Paused:
		return paused
	case !t.passed && t.slot.mayOvertake(t.at), !t.passed && (!t.wasHeld || !t.slot.leaving.IsZero()) && !f.precedes(g, t) && (g.behind || len(g.waiting) >= max(g.ahead(now), 1)):
		return behindHeld
	}
	return limited
}

// arrives notes that a task is back from its held place, whatever follows for it: others may come.
func (f *gates) arrives(t *Task) {
	if g := f.byTopic[t.topic]; g != nil && !t.wasHeld && g.coming.has(t.seq) {
		g.coming.arrives(t.seq)
		t.wasHeld = true
	}
}

// keepsTurn gives a task called back for another attempt its instant from before it was held. Its
// new place is behind the tasks claimed then: by that place, the task would wait behind later tasks
// of its target.
func (f *gates) keepsTurn(t *Task) {
	if g := f.byTopic[t.topic]; g != nil && t.attempt > 0 && t.state != task.StateReport {
		if r := g.coming.of(t, t.attempt); r != nil {
			t.at = min(t.at, r.at)
		}
	}
}

// passesOver notes that a task called back does not come to the gate for now.
func (f *gates) passesOver(topic string, seq int64) {
	if g := f.byTopic[topic]; g != nil {
		g.coming.arrives(seq)
	}
}

// begins and ends count the producers' records.
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

// release hands over tasks that may pass their gates, while more are wanted.
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

// diverts takes a claimed task out of the way to its body if the task is to be held. One that an
// earlier owner may have sent goes on: the send log may know more.
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
