package flight

import (
	"time"

	"github.com/notyet/notyet/store"
	"github.com/notyet/notyet/store/line"
	"github.com/notyet/notyet/task"
)

// A task that was put back is called back when it may be sent after all: its outlet answers again, or its target's gate has room. It stands in
// the database, in its slot, at a later place; the settlement moves it to the place where it should have been.

// recallMost is how many tasks are called back in one round of settling: 20 000 a second.
const recallMost = 1000

// recallOf calls a task of a slot back to where it is due at pos. from is its held place; 0: the task is not held.
func recallOf(l *ownedSlot, seq, from, pos int64, attempt int, lane task.Lane) Transition {
	return Transition{task: &Task{slot: l, seq: seq, lane: lane},
		Transition: line.Transition{Seq: seq, Slot: l.number, Epoch: l.epoch, Recall: true, From: from, Pos: pos, Attempt: attempt, Lane: lane}}
}

// recall hands tasks that are called back to the settlement.
func (fl *Flight) recall(back []Transition) {
	if len(back) > 0 {
		fl.inbox.recall(back)
		fl.kicks.Settle.Now()
	}
}

// MayRecall separates the recalls of tasks whose last transition is settled from the others.
func MayRecall(recalls, unsettled []Transition) (now, early []Transition) {
	if len(recalls) == 0 || len(unsettled) == 0 {
		return recalls, nil
	}
	wait := make(map[int64]bool, len(unsettled))
	for _, e := range unsettled {
		wait[e.Seq] = true
	}
	for _, e := range recalls {
		if wait[e.Seq] {
			early = append(early, e)
		} else {
			now = append(now, e)
		}
	}
	return now, early
}

// recalled has the slots claimed in which tasks stand now that were called back: behind what is claimed, though they should have gone
// already. Their gates learn which of them come.
func (fl *Flight) recalled(transitions []Transition, moved []store.Place) {
	inLine := map[int64]bool{}
	for _, m := range moved {
		inLine[m.Seq] = !task.IsHeld(m.Pos)
	}
	until := time.Now().Add(recallWait)
	for _, e := range transitions {
		if l := fl.slots[e.Slot]; e.Recall && l != nil {
			l.urgent = min(l.urgent, e.Pos)
		}
		if e.gate != nil {
			e.gate.coming.settled(e.Seq, inLine[e.Seq], until)
		}
	}
}
