package flight

import (
	"slices"
	"time"

	"go.uber.org/zap"

	"github.com/notyet/notyet/store/line"
)

// Settling is for the settle loop: tasks leave their places, and slots close.
type Settling struct{ *machine }

// Leaving are the tasks that leave in a round of settling. Left comes next.
type Leaving struct {
	*machine
	Transitions []Transition
	recalls     []Transition
}

// Recalls are the tasks called back in a round. Left comes last.
type Recalls struct {
	*machine
	Transitions []Transition
	unsettled   []Transition // what is left of Leaving
	early       []Transition // called back, and among those
}

// Begin takes the tasks that leave their places, and at most a round of recalls. Delivered tasks
// after a long hold-up leave with them.
func (fl Settling) Begin() *Leaving {
	fl.mu.Lock()
	defer fl.mu.Unlock()
	fl.leavePinned()
	transitions, recalls, more := fl.inbox.takeLeaving(recallMost)
	if more {
		fl.kicks.Settle.Now()
	}
	return &Leaving{fl.machine, fl.ours(transitions), recalls}
}

// Left takes the unsettled rest, and returns the tasks that may be called back now.
func (l *Leaving) Left(unsettled []Transition) *Recalls {
	now, early := mayRecall(l.recalls, unsettled)
	l.mu.Lock()
	defer l.mu.Unlock()
	return &Recalls{l.machine, l.ours(now), unsettled, early}
}

// Left takes back everything unsettled.
func (r *Recalls) Left(unsettled []Transition) {
	if recalls := append(unsettled, r.early...); len(r.unsettled)+len(recalls) > 0 {
		r.inbox.putBack(r.unsettled, recalls)
	}
}

// Attempt is what one transaction is to settle.
type Attempt struct {
	*machine
	Transitions []Transition
	closings    []closing
}

// Ours leaves out transitions of slots that were lost, and all but the last word on one task.
func (fl Settling) Ours(transitions []Transition) Attempt {
	fl.mu.Lock()
	defer fl.mu.Unlock()
	return Attempt{machine: fl.machine, Transitions: fl.ours(transitions)}
}

func (fl *machine) ours(transitions []Transition) []Transition {
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

// closing is how far a slot can be closed.
type closing struct {
	line.Done
	slot *ownedSlot
}

// Closable returns how far the slots can be closed now.
func (fl Settling) Closable() Attempt {
	fl.mu.Lock()
	defer fl.mu.Unlock()
	out := Attempt{machine: fl.machine}
	for _, l := range fl.slots {
		if to, tally := l.closable(); to > l.done {
			out.closings = append(out.closings, closing{line.Done{Slot: l.number, Epoch: l.epoch, From: l.done, To: to, Tally: tally}, l})
		}
	}
	return out
}

// Settled takes the database's answer, after so long: the attempt is durable.
func (a Attempt) Settled(result line.Settled, took time.Duration) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if len(a.Transitions) > 0 {
		a.unsettled.settledIn(len(a.Transitions), took)
	}
	a.close(result)
	for _, e := range a.Transitions {
		e.task.status = left
		a.unsettled.ends(e.task)
		if reported, ok := result.Reported[e.Seq]; ok {
			e.Dead = reported.Dead
		}
		if e.Dead != nil && !slices.Contains(result.Ignored, e.Seq) {
			a.metrics.Dead.WithLabelValues(e.Dead.Kind).Inc()
			a.metrics.Died(e.Dead.Topic)
		}
		if t := a.stuck[e.Seq]; t != nil && t.lateAnswer {
			delete(a.stuck, e.Seq)
			a.leftAgain(e)
		}
	}
	for _, m := range result.Moved {
		if l := a.slots[m.Slot]; l != nil && m.Pos > l.claimed {
			l.next = min(l.next, m.Pos)
		}
	}
	a.recalled(result.Moved)
	a.kicks.Claim.Now()
	a.kicks.Release.Now() // of the outlets that wait for the database
	if a.stopping.Load() {
		a.kicks.Own.Now()
	}
}

// close moves done. Where the database has other tasks than were settled, the slot is taken anew.
func (a Attempt) close(result line.Settled) {
	mismatch := map[int]bool{}
	for _, slot := range result.Mismatch {
		mismatch[slot] = true
	}
	for _, c := range a.closings {
		l := c.slot
		switch {
		case l.abandoned:
		case mismatch[l.number]:
			a.metrics.Mismatch.Inc()
			a.log.Error("the database has other tasks than were settled: taking the slot anew", zap.Int("slot", l.number),
				zap.Int64("from", c.From), zap.Int64("to", c.To), zap.Int("settled", c.Count))
			a.abandonOurs(l, "the database has other tasks in it")
		default:
			to := c.To
			if at, ok := result.Stands[l.number]; ok {
				to = at
				a.kicks.Settle.Now()
			}
			a.entries -= l.closeTo(to)
		}
	}
}

// leftAgain marks a task that was claimed anew, and ended by a late answer.
func (a Attempt) leftAgain(e Transition) {
	if l := a.slots[e.Slot]; l != nil {
		for _, t := range l.open() {
			if t.seq == e.Seq && t.status == leaving {
				t.status = left
			}
		}
	}
}

// Rows are what the database is given.
func (a Attempt) Rows() (done []line.Done, rows []line.Transition) {
	for _, c := range a.closings {
		done = append(done, c.Done)
	}
	rows = make([]line.Transition, len(a.Transitions))
	for i, e := range a.Transitions {
		rows[i] = e.Transition
	}
	return done, rows
}

// leavePinned takes delivered tasks out of their slots after a long hold-up.
func (fl Settling) leavePinned() {
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
