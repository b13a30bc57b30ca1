package flight

import (
	"slices"
	"time"

	"github.com/notyet/notyet/internal/slots"
	"github.com/notyet/notyet/store"
	"github.com/notyet/notyet/store/line"
	"github.com/notyet/notyet/task"
)

// While the number of slots changes, each owner splits its slots, and the tasks go to where they
// belong (docs/design/slots.md). Neither a split slot nor one that takes tasks over is claimed, or
// has held tasks called back, beyond the place up to which all tasks are where they belong.

// raiseEvery is how often held tasks of a slot may be called back further while others are still to
// come: each time, all gates look anew from there.
const raiseEvery = time.Second

// Turned tells whether an owned slot has turned since the last reading.
func (fl Owning) Turned(rows []store.Slot) bool {
	fl.mu.Lock()
	defer fl.mu.Unlock()
	return slices.ContainsFunc(rows, func(r store.Slot) bool { l := fl.slots[r.Slot]; return l != nil && r.Turn > l.turn })
}

// SlotsSeen takes all slots as the database has them: how far owned ones may be claimed. A caller
// takes in one reading before the next.
func (fl Owning) SlotsSeen(rows []store.Slot) {
	claimTo, callTo := int64(never), int64(never) // of slots that take tasks over
	for _, r := range rows {
		if r.Split() {
			claimTo, callTo = min(claimTo, r.Moved), min(callTo, r.MovedHeld)
		}
	}
	fl.mu.Lock()
	defer fl.mu.Unlock()
	risen := int64(never) // held tasks beyond this place may be called back now
	fewer := false        // some may not any more
	for _, r := range rows {
		l := fl.slots[r.Slot]
		if l == nil || r.Epoch != l.epoch {
			continue
		}
		if r.Turn < l.turn { // the database was set back: the sweep abandons the slot
			fl.kicks.Sweep.Now()
			continue
		}
		turned := r.Turn > l.turn
		l.turn = r.Turn
		callMost := int64(never)
		switch {
		case r.Split():
			l.claimMost, callMost = r.Moved, r.MovedHeld
		case r.Changing() && !slots.Leaving(r.Slot, r.Base, r.Target):
			l.claimMost, callMost = claimTo, callTo
		default:
			l.claimMost = never
		}
		switch {
		case callMost < l.callMost:
			l.callMost, fewer = callMost, true
		case callMost > l.callMost && (callMost == never || time.Since(l.raised) >= raiseEvery):
			if task.IsHeld(callMost) {
				risen, l.raised = min(risen, l.callMost), time.Now()
			}
			l.callMost = callMost
		}
		if turned && task.IsHeld(l.callMost) { // a slot was split: what it has moved here until now may stand anywhere up to there
			risen = 0
		}
	}
	if risen < never {
		fl.gates.lookAgain(line.HeldPlace{Pos: risen})
	}
	if fewer {
		for _, g := range fl.gates.byTopic {
			fl.gates.holdBack(g, func(t *Task) bool { return t.slot.mayOvertake(t.at) })
		}
	}
	fl.kicks.Claim.Now()
}
