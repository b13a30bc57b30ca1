package flight

import (
	"slices"
	"time"

	"go.uber.org/zap"

	"github.com/notyet/notyet/store/line"
)

// TakeLeaving takes the tasks that leave their places, and at most a round of those that are called back.
func (fl *machine) TakeLeaving() (transitions, recalls []Transition) {
	transitions, recalls, more := fl.inbox.takeLeaving(recallMost)
	if more {
		fl.kicks.Settle.Now()
	}
	return transitions, recalls
}

// NotLeft takes back what could not be settled.
func (fl *machine) NotLeft(transitions, recalls []Transition) {
	if len(transitions)+len(recalls) > 0 {
		fl.inbox.putBack(transitions, recalls)
	}
}

// Ours leaves out transitions of slots that were lost, and all but the last word on one task.
func (fl *machine) Ours(transitions []Transition) []Transition {
	fl.mu.Lock()
	defer fl.mu.Unlock()
	at := map[int64]int{}
	out := transitions[:0]
	for _, e := range transitions {
		if l := fl.slots[e.Slot]; l == nil || l != e.task.slot { // the slot may have been taken anew under the same epoch
			continue
		}
		if fl.stuck[e.Seq] == nil && !e.Recall { // nobody but a late answer has another word on a task
			out = append(out, e)
			continue
		}
		if i, ok := at[e.Seq]; ok {
			// Ended wins over set aside, and so does an attempt that failed.
			if e.State > out[i].State || e.State == out[i].State && e.Attempt > out[i].Attempt {
				e.task = out[i].task // the one in the slot
				out[i] = e
			}
			continue
		}
		at[e.Seq] = len(out)
		out = append(out, e)
	}
	return out
}

// Closing is how far a slot can be closed.
type Closing struct {
	line.Done
	slot *ownedSlot
}

// Closable returns how far the slots can be closed now. Delivered tasks that are held up there leave by themselves.
func (fl *machine) Closable() (out []Closing) {
	fl.mu.Lock()
	defer fl.mu.Unlock()
	for _, l := range fl.slots {
		if to, tally := l.closable(); to > l.done {
			out = append(out, Closing{line.Done{Slot: l.number, Epoch: l.epoch, From: l.done, To: to, Tally: tally}, l})
		}
	}
	return out
}

// LeavePinned takes delivered tasks out of slots in which they have been held up for long.
func (fl *machine) LeavePinned() {
	fl.mu.Lock()
	defer fl.mu.Unlock()
	fl.leavePinned()
}

// Settled takes what the database did: transitions and closings that are durable, after so long.
func (fl *machine) Settled(transitions []Transition, closings []Closing, result line.Settled, took time.Duration) {
	fl.mu.Lock()
	defer fl.mu.Unlock()
	if len(transitions) > 0 {
		fl.unsettled.settledIn(len(transitions), took)
	}
	fl.close(closings, result)
	for _, e := range transitions {
		e.task.status = left
		fl.unsettled.ends(e.task)
		if reported, ok := result.Reported[e.Seq]; ok {
			e.Dead = reported.Dead
		}
		if e.Dead != nil && !slices.Contains(result.Ignored, e.Seq) {
			fl.metrics.Dead.WithLabelValues(e.Dead.Kind).Inc()
		}
		if t := fl.stuck[e.Seq]; t != nil && t.lateAnswer {
			delete(fl.stuck, e.Seq)
			fl.leftAgain(e)
		}
	}
	for _, m := range result.Moved {
		if l := fl.slots[m.Slot]; l != nil && m.Pos > l.claimed {
			l.next = min(l.next, m.Pos)
		}
	}
	fl.recalled(transitions, result.Moved)
	fl.kicks.Claim.Now()
	fl.kicks.Release.Now() // of the outlets that wait for the database
	if fl.stopping.Load() {
		fl.kicks.Own.Now()
	}
}

// close moves done. Where the database has other tasks than were settled, the slot is taken anew.
func (fl *machine) close(closings []Closing, result line.Settled) {
	mismatch := map[int]bool{}
	for _, slot := range result.Mismatch {
		mismatch[slot] = true
	}
	for _, c := range closings {
		l := c.slot
		switch {
		case l.abandoned:
		case mismatch[l.number]:
			fl.metrics.Mismatch.Inc()
			fl.log.Error("the database has other tasks than were settled: taking the slot anew", zap.Int("slot", l.number),
				zap.Int64("from", c.From), zap.Int64("to", c.To), zap.Int("settled", c.Count))
			fl.abandonOurs(l, "the database has other tasks in it")
		default:
			to := c.To
			if at, ok := result.Stands[l.number]; ok {
				to = at
				fl.kicks.Settle.Now()
			}
			fl.entries -= l.closeTo(to)
		}
	}
}

// leftAgain marks what was claimed anew of a task whose late answer has ended it.
func (fl *machine) leftAgain(e Transition) {
	if l := fl.slots[e.Slot]; l != nil {
		for _, t := range l.open() {
			if t.seq == e.Seq && t.status == leaving {
				t.status = left
			}
		}
	}
}

// Rows are what the database is given of transitions.
func Rows(transitions []Transition) []line.Transition {
	rows := make([]line.Transition, len(transitions))
	for i, e := range transitions {
		rows[i] = e.Transition
	}
	return rows
}

// leavePinned takes delivered tasks out of slots in which they have been held up for long.
func (fl *machine) leavePinned() {
	fl.unsettled.forgetDurable()
	closable, n, now := map[*ownedSlot]int64{}, 0, time.Now()
	for _, t := range fl.unsettled.deliveries {
		if now.Sub(t.acked) < pinnedFor || n == pinnedMost {
			return
		}
		if t.status != settled || t.durable() {
			continue
		}
		to, known := closable[t.slot]
		if !known {
			to, _ = t.slot.closable()
			closable[t.slot] = to
		}
		if t.pos > to {
			fl.settleApart(t)
			n++
		}
	}
}
