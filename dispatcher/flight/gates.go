package flight

import (
	"slices"

	"go.uber.org/zap"

	"github.com/notyet/notyet/store/admin"
	"github.com/notyet/notyet/store/line"
	"github.com/notyet/notyet/task"
)

// gates keep the operators' policies in force: targets that are paused, or limited. Tasks that a gate does not let through soon are moved
// to held places, and called back from there.
type gates struct {
	flight *Flight
	anew   int // how often lookAgain was called
	slots  int // of the installation, as the rows of owned slots say

	byTopic map[string]*Gate
	lanes   map[uint32][]*Gate // the same, by what a task's lane tells of its topic
	key     task.LaneKey       // of the lanes; read with the policies
}

func newGates(fl *Flight) *gates {
	return &gates{flight: fl, byTopic: map[string]*Gate{}, lanes: map[uint32][]*Gate{}}
}

// ApplyPolicies puts policies in force. It returns which part of the slots is owned here.
func (fl *Flight) ApplyPolicies(all []admin.Policy, key task.LaneKey) (part float64) {
	fl.mu.Lock()
	defer fl.mu.Unlock()
	fl.gates.key = key
	fl.gates.apply(all)
	return fl.gates.part()
}

// lookAgain has all gates look anew at what is held behind a place: of what they passed over, or was not there, some may be called back now.
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

// leaves holds what waits at gates of a slot that is to leave: what was called back before it, and is not here, goes with the slot.
func (f *gates) leaves(l *ownedSlot) {
	for _, g := range f.byTopic {
		if g.coming.count() > 0 {
			g.behind, g.found = true, true
		}
		f.holdBack(g, func(t *Task) bool { return g.behind && t.slot == l })
	}
}

// holdBack holds some of the tasks that wait at a gate.
func (f *gates) holdBack(g *Gate, goes func(*Task) bool) {
	for _, t := range g.takeBack(goes) {
		f.hold(g, t, t.attempt)
	}
}

// part is which part of the slots is owned here.
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

// close sends what waits at a gate, or behind it for its partition, to held places.
func (f *gates) close(g *Gate) {
	f.holdBack(g, func(*Task) bool { return true })
	for _, o := range f.flight.outlets.byKey {
		if o.topic != g.Topic {
			continue
		}
		for _, t := range o.waiting {
			f.hold(g, t, t.attempt)
		}
		o.waiting = nil
	}
}
