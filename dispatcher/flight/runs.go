package flight

import (
	"github.com/notyet/notyet/schemas"
	"github.com/notyet/notyet/store"
	"github.com/notyet/notyet/store/line"
	"github.com/notyet/notyet/task"
)

// A timer's run that is due is released or dropped. A run that must be alone or is missed waits in runs until the database has said whether
// an earlier one is unfinished, or a later one on its way.

// overlapMost is how many runs are asked about at once.
const overlapMost = 500

// admitsRun tells whether a run that is due may be released now. If not, it waits for what the database says.
func (fl *Flight) admitsRun(t *Task, now int64) bool {
	if t.started || !fl.missed(t, now) && !(t.first() && t.settings.Run.Alone) { // in doubt, one that must be alone asks too: what was not started was not sent
		return true
	}
	fl.runs = append(fl.runs, t)
	fl.kicks.Overlap.Now()
	return false
}

// first tells whether a run was not started before.
func (t *Task) first() bool { return t.attempt == 0 && t.replay == 0 }

// missed tells whether a run is too late to be released as if nothing had been.
func (fl *Flight) missed(t *Task, now int64) bool {
	return t.first() && !t.maybeSent() && task.RunMissed(t.settings.Run, t.due, now, fl.cfg.MisfireAfter)
}

// TakeRuns takes runs of which the database is to say whether they may begin.
func (fl *Flight) TakeRuns() []*Task {
	fl.mu.Lock()
	defer fl.mu.Unlock()
	n := min(len(fl.runs), overlapMost)
	out := fl.runs[:n:n]
	if fl.runs = fl.runs[n:]; len(fl.runs) == 0 {
		fl.runs = nil
	}
	return out
}

// Starts are those of the runs whose slots are still ours, in the order in which they are due.
func (fl *Flight) Starts(runs []*Task) []line.Start {
	fl.mu.Lock()
	defer fl.mu.Unlock()
	now := fl.clock.Millis()
	var out []line.Start
	for _, t := range runs {
		if t.slot.abandoned {
			continue
		}
		t.missed = fl.missed(t, now)
		out = append(out, line.Start{SlotEpoch: store.SlotEpoch{Slot: t.slot.number, Epoch: t.slot.epoch}, Seq: t.seq, Topic: t.topic, Timer: t.settings.Run.Timer,
			Run: task.RunInstant(t.id), Alone: t.settings.Run.Alone, Missed: t.missed, Skip: t.settings.Run.DropFrom == t.due})
	}
	return out
}

// Started drops the runs that the database refused; the others wait for their release again. A run that became missed while the database
// kept its answer is asked about once more.
func (fl *Flight) Started(runs []*Task, refused map[int64]line.Refusal) {
	fl.mu.Lock()
	defer fl.mu.Unlock()
	now := fl.clock.Millis()
	for _, t := range runs {
		switch {
		case t.slot.abandoned:
		case refused[t.seq] != 0:
			fl.dropRun(t, refused[t.seq])
		default:
			t.started = t.missed || !fl.missed(t, now)
			fl.due.push(t)
		}
	}
	fl.kicks.Release.Now()
}

// dropRun ends a run without a dead letter.
func (fl *Flight) dropRun(t *Task, why line.Refusal) {
	label, event := DropOverlap, task.Overlapping
	if why == line.RunMissed {
		label, event = DropMissed, task.Missed
	}
	fl.metrics.DroppedRuns.WithLabelValues(label).Inc()
	fl.leave(t, Transition{Transition: line.Transition{State: task.StateDead, Attempt: t.attempt, Lane: t.lane,
		Events: []schemas.Event{event(t.topic, t.id, t.due)}}})
}
