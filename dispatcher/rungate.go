package dispatcher

import (
	"context"
	"errors"
	"sync"

	"go.uber.org/zap"

	"github.com/notyet/notyet/schemas"
	"github.com/notyet/notyet/store"
	"github.com/notyet/notyet/task"
)

// runGate decides whether a timer's run that is due is released or dropped. A run that must be alone or is missed waits here until the
// database has said whether an earlier one is unfinished, or a later one on its way. The release loop adds such runs; the runStarter takes them.
type runGate struct {
	*shared
	flight *inFlight

	mu      sync.Mutex // guards waiting alone
	waiting []*claimedTask
}

func newRunGate(fl *inFlight) *runGate { return &runGate{shared: fl.shared, flight: fl} }

// overlapMost is how many runs are asked about at once.
const overlapMost = 500

// admit tells whether a run that is due may be released now. The lock of those in flight is held.
func (g *runGate) admit(t *claimedTask, now int64) bool {
	first := t.attempt == 0 && t.replay == 0 // otherwise it was started before
	t.missed = first && !t.maybeSent() && task.RunMissed(t.settings.Run, t.due, now, g.cfg.MisfireAfter)
	if t.started || !t.missed && !(first && t.settings.Run.Alone) { // in doubt, one that must be alone asks too: what was not started was not sent
		return true
	}
	g.mu.Lock()
	g.waiting = append(g.waiting, t)
	g.mu.Unlock()
	g.kicks.overlap.now()
	return false
}

// drop ends a run without a dead letter. The lock of those in flight is held.
func (g *runGate) drop(t *claimedTask, why store.Refusal) {
	label, event := dropOverlap, task.Overlapping
	if why == store.RunMissed {
		label, event = dropMissed, task.Missed
	}
	g.metrics.droppedRuns.WithLabelValues(label).Inc()
	g.flight.leave(t, transition{Transition: store.Transition{State: task.StateDead, Attempt: t.attempt, Lane: t.lane},
		events: []schemas.Event{event(t.topic, t.id, t.due)}})
}

func (g *runGate) take() []*claimedTask {
	g.mu.Lock()
	defer g.mu.Unlock()
	n := min(len(g.waiting), overlapMost)
	out := g.waiting[:n:n]
	if g.waiting = g.waiting[n:]; len(g.waiting) == 0 {
		g.waiting = nil
	}
	return out
}

// starts are the runs whose slots are still ours, in the order in which they are due.
func (g *runGate) starts(list []*claimedTask) []store.Start {
	g.flight.mu.Lock()
	defer g.flight.mu.Unlock()
	var out []store.Start
	for _, t := range list {
		if t.slot.abandoned {
			continue
		}
		out = append(out, store.Start{SlotEpoch: store.SlotEpoch{Slot: t.slot.number, Epoch: t.slot.epoch}, Seq: t.seq, Topic: t.topic, Timer: t.settings.Run.Timer,
			Run: task.RunInstant(t.id), Alone: t.settings.Run.Alone, Missed: t.missed, Skip: t.settings.Run.DropFrom == t.due})
	}
	return out
}

// runStarter asks the database about the runs that wait at the gate, and hands on what may go.
type runStarter struct {
	*shared
	gate      *runGate
	sender    *sender
	ownership *ownership
}

func newRunStarter(s *sender, o *ownership) *runStarter {
	return &runStarter{shared: s.shared, gate: s.runs, sender: s, ownership: o}
}

func (s *runStarter) run(ctx context.Context) {
	for {
		select {
		case <-ctx.Done():
			return
		case <-s.kicks.overlap:
		}
		for list := s.gate.take(); len(list) > 0 && ctx.Err() == nil; list = s.gate.take() {
			s.start(ctx, list)
		}
	}
}

// start asks about runs, again and again until the database has answered or their slots are lost, and hands them on.
func (s *runStarter) start(ctx context.Context, list []*claimedTask) {
	for failures := 1; ctx.Err() == nil; failures++ {
		starts := s.gate.starts(list)
		if len(starts) == 0 {
			return
		}
		bound, cancel := context.WithTimeout(ctx, answerWithin)
		refused, err := s.store.StartRuns(bound, starts, s.clock.Millis(), s.cfg.MisfireAfter)
		cancel()
		switch {
		case err == nil:
			s.started(list, refused)
			return
		case errors.Is(err, store.ErrFenced):
			s.ownership.fenced(ctx)
		default:
			s.metrics.retries.Inc()
			if ctx.Err() == nil {
				s.log.Warn("starting runs of timers failed, trying again", zap.Error(err))
			}
		}
		sleep(ctx, pauseAfter(failures))
	}
}

// started drops the runs that were refused, and gives the others back to the sender.
func (s *runStarter) started(list []*claimedTask, refused map[int64]store.Refusal) {
	fl := s.gate.flight
	fl.mu.Lock()
	defer fl.mu.Unlock()
	for _, t := range list {
		switch {
		case t.slot.abandoned:
		case refused[t.seq] != 0:
			s.gate.drop(t, refused[t.seq])
		default:
			t.started = true
			s.sender.await(t)
		}
	}
	s.kicks.release.now()
}
