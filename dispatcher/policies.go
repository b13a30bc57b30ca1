package dispatcher

import (
	"context"
	"slices"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promauto"
	"go.uber.org/zap"

	"github.com/notyet/notyet/store"
	"github.com/notyet/notyet/task"
)

// policies keeps the operators' policies in force: targets that are paused, or limited. Its loop reads the policies; the fetch and release
// loops ask it about tasks; the loop of policyheld.go moves tasks between the gates and their held places. The lock of those in flight guards
// what it knows.
//
// A policy that was read stays in force until another one is read, however long the database is away. Before the first are read,
// nothing is claimed or sent at all: see start.
type policies struct {
	*shared
	flight  *inFlight
	outlets *outlets
	slots   int                // of the installation
	counted time.Time          // when they were
	share   func(part float64) // told which part of the slots is owned here, for limits of all dispatchers together
	arrived int                // as inFlight has it, when it was last looked at

	gates map[string]*gate   // by topic
	lanes map[uint32][]*gate // the same, by what a task's lane tells of its topic
	key   task.LaneKey       // of the lanes; read with the policies

	kick   kick        // of the loop that moves tasks
	claims func() bool // whether what is called back is claimed soon: claimer.claims. The lock of those in flight is held
}

func newPolicies(fl *inFlight, outs *outlets) *policies {
	return &policies{shared: fl.shared, flight: fl, outlets: outs, gates: map[string]*gate{}, lanes: map[uint32][]*gate{}, kick: newKick(), claims: func() bool { return true }, share: func(float64) {}}
}

const (
	// policiesEvery is how often the policies are read. One is in force a second after it was stored, with time to spare for a
	// database that is slow.
	policiesEvery = 200 * time.Millisecond
	// slotsEvery is how often the slots are counted: their number grows while dispatchers run.
	slotsEvery = time.Second
	// policiesWithin bounds one reading.
	policiesWithin = 2 * time.Second
)

// start reads the policies for the first time, and waits for the database if need be: a paused target must not get anything from a
// dispatcher that has just begun. An error says that ctx ended.
func (f *policies) start(ctx context.Context) error {
	for failures := 1; ; failures++ {
		bound, cancel := context.WithTimeout(ctx, policiesWithin)
		err := f.read(bound)
		cancel()
		if err == nil {
			return nil
		}
		if ctx.Err() != nil {
			return ctx.Err()
		}
		f.log.Warn("the targets' policies are not known yet, and nothing is delivered before", zap.Error(err))
		sleep(ctx, pauseAfter(failures))
	}
}

// run keeps the policies up to date.
func (f *policies) run(ctx context.Context) {
	tick := time.NewTicker(policiesEvery)
	defer tick.Stop()
	for failures := 0; ; {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
		bound, cancel := context.WithTimeout(ctx, policiesWithin)
		err := f.read(bound)
		cancel()
		if err != nil && ctx.Err() == nil {
			if failures++; failures%10 == 1 {
				f.log.Warn("reading the targets' policies failed: those that are known stay in force", zap.Error(err))
			}
			continue
		}
		failures = 0
	}
}

func (f *policies) read(ctx context.Context) error {
	all, err := f.store.Policies(ctx)
	f.reads.note(err)
	if err != nil {
		return err
	}
	key, err := f.store.LaneKey(ctx)
	if err != nil {
		return err
	}
	slots := f.slots
	if time.Since(f.counted) >= slotsEvery {
		if slots, err = f.store.SlotCount(ctx); err != nil {
			return err
		}
		f.counted = time.Now()
	}
	f.flight.mu.Lock()
	defer f.flight.mu.Unlock()
	f.slots, f.key = slots, key
	f.share(f.part())
	f.apply(all)
	return nil
}

// part is which part of the slots is owned here. inFlight.mu is held.
func (f *policies) part() float64 {
	return min(float64(len(f.flight.slots))/float64(max(f.slots, 1)), 1)
}

// apply puts policies in force. inFlight.mu is held.
func (f *policies) apply(all []store.Policy) {
	if len(all) == 0 && len(f.gates) == 0 {
		return
	}
	if f.arrived != f.flight.arrived { // what was passed over may be ours now
		f.arrived = f.flight.arrived
		for _, g := range f.gates {
			g.after, g.behind, g.found = store.HeldPlace{}, true, false
		}
	}
	share := f.part()
	said := make(map[string]bool, len(all))
	for _, p := range all {
		said[p.Topic] = true
		g := f.gates[p.Topic]
		if g == nil {
			g = f.open(p.Topic)
		}
		before := g.Policy
		g.set(p, share)
		if before.Changed != p.Changed {
			f.log.Info("a target has another policy", zap.String("topic", p.Topic), zap.Bool("paused", p.Paused), zap.Float64("rate", p.Rate), zap.Int("max_in_flight", p.MaxInFlight))
			if p.Paused {
				f.close(g)
			}
		}
	}
	for topic, g := range f.gates {
		if !said[topic] { // its row was deleted: nothing of it was held
			g.set(store.Policy{Topic: topic}, share)
			if g.free() && g.sending == 0 {
				f.forget(g)
			}
		}
	}
	f.kick.now()
	f.kicks.release.now()
}

// open makes the gate of a target. inFlight.mu is held.
func (f *policies) open(topic string) *gate {
	g := newGate(topic, f.cfg.StageTasks)
	f.gates[topic] = g
	for _, target := range f.key.Targets(topic) {
		f.lanes[target] = append(f.lanes[target], g)
	}
	for _, t := range f.outlets.byKey {
		if t.topic == topic {
			g.sending += t.sending
		}
	}
	return g
}

func (f *policies) forget(g *gate) {
	delete(f.gates, g.Topic)
	for _, target := range f.key.Targets(g.Topic) {
		if f.lanes[target] = slices.DeleteFunc(f.lanes[target], func(o *gate) bool { return o == g }); len(f.lanes[target]) == 0 {
			delete(f.lanes, target)
		}
	}
}

// close sends what waits at a gate, or behind it for its partition, to held places. inFlight.mu is held.
func (f *policies) close(g *gate) {
	for _, t := range g.takeBack(never) {
		f.hold(g, t)
	}
	for _, o := range f.outlets.byKey {
		if o.topic != g.Topic {
			continue
		}
		for _, t := range o.waiting {
			f.hold(g, t)
		}
		o.waiting = nil
	}
}

// registerGauges shows which policies are in force here.
func (f *policies) registerGauges(reg prometheus.Registerer) {
	gauge := func(name, help string, of func(*gate) int) {
		promauto.With(reg).NewGaugeFunc(prometheus.GaugeOpts{Namespace: "notyet", Subsystem: "dispatcher", Name: name, Help: help}, func() float64 {
			f.flight.mu.Lock()
			defer f.flight.mu.Unlock()
			n := 0
			for _, g := range f.gates {
				n += of(g)
			}
			return float64(n)
		})
	}
	one := func(yes bool) int {
		if yes {
			return 1
		}
		return 0
	}
	gauge("paused_targets", "Targets that an operator has paused.", func(g *gate) int { return one(g.Paused) })
	gauge("limited_targets", "Targets that an operator has limited, and not paused.", func(g *gate) int { return one(!g.Paused && !g.Open()) })
	gauge("gated_tasks", "Tasks in memory that wait for what their target's limits let through.", func(g *gate) int { return len(g.waiting) + g.coming.count() })
}
