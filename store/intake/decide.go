package intake

import (
	"time"

	"github.com/notyet/notyet/schemas"
	"github.com/notyet/notyet/store/internal/handle"
	"github.com/notyet/notyet/task"
)

// decideAll runs the changes of an identity through the state machine, in order: first those that
// waited, then those of the batch. Once a request must wait, all requests behind it wait too. A
// report never waits behind a request, because it is about the very delivery that the request waits
// for.
func (w *work) decideAll(id *identity) error {
	w.decideDue(id)
	for _, c := range id.changes {
		if w.merged.enough() && w.several {
			return errMerging
		}
		if w.mayBeForgotten(id.now, c) {
			return handle.ErrUnsure
		}
		if w.decideOne(id, c, id.queue.requests > 0) {
			continue
		}
		h, err := newWaitingChange(id.key, c)
		if err != nil {
			return err
		}
		added := id.queue.add(h)
		if !added && w.phase(id) == task.Unsure { // soon there is room
			return handle.ErrUnsure
		}
		if !added && c.Request != nil {
			w.addOutcome(c, task.TooMany(c, id.now))
		}
	}
	if w.reconciling {
		w.applyEvidence(id, nil)
	}
	return nil
}

// decideDue runs what waited for an identity through the state machine.
func (w *work) decideDue(id *identity) {
	w.closeFullBoxes()
	id.now = id.before
	for _, h := range id.queue.due {
		if w.merged.enough() && !h.report {
			return // they wait for the next transaction
		}
		if w.decideOne(id, h.change, false) {
			id.queue.remove(h)
		} else if !h.report { // reports come first, so all that follow are requests: they stay in the table as they are
			return
		}
	}
}

// decideOne decides a change, unless it must wait.
func (w *work) decideOne(id *identity, c task.Change, queued bool) (decided bool) {
	w.applyEvidence(id, &c)
	if w.foreign(c.Report, id.now) {
		return true
	}
	if queued && c.Report == nil {
		return false
	}
	phase := w.phase(id)
	// Where another record of the task may follow, as from the next owner's memory, that record would come after what is done with the id
	// once the task has ended. Such a report waits for the owner, and so does one behind another report.
	if c.Report != nil && phase == task.InFlight && id.queue.reports == 0 && id.now.State == task.StateLine && w.slots[id.now.Slot].SentOnce(id.now.Pos) {
		phase = task.SentOnce
	}
	began := time.Now()
	v := task.Decide(id.now, phase, c, w.spread, w.now)
	w.merged.took += time.Since(began)
	if v.Wait {
		return false
	}
	id.now = v.Next
	w.merged.bytes += v.Cost
	if v.ToldTooLate {
		w.taken = append(w.taken, id.now.Seq)
	}
	w.addOutcome(c, v)
	return true
}

// addOutcome keeps the dead letter and the event of a verdict.
func (w *work) addOutcome(c task.Change, v task.Verdict) {
	if v.Dead != nil {
		v.Dead.DiedAt = w.now
		w.dead = append(w.dead, v.Dead)
	}
	if c.Request != nil && v.Event.State != "" {
		v.Event.Request = w.intake.known.position(c.Seq)
	}
	w.addEvent(w.now, c.Seq, v.Event)
}

// phase returns the phase of the identity's task after the changes so far. What this transaction
// has made is pending, waiting or ended by construction, unless a life before has made the same and
// it was forgotten.
func (w *work) phase(id *identity) task.Phase {
	switch {
	case id.now == nil:
		return task.Ended
	case id.now == id.before:
		return w.nowUnsure(id.now, id.now.Phase(w.slots[id.now.Slot].Claimed, w.slots[id.now.Slot].Done))
	case id.now.Slot == task.OutOfLine:
		return task.Ended
	case id.now.State != task.StateLine:
		return w.nowUnsure(id.now, task.Between)
	}
	return w.nowUnsure(id.now, task.Pending)
}

func (w *work) reject(c task.Change) {
	w.closeFullBoxes()
	d := *c.Rejected
	d.DiedAt = w.now
	w.dead = append(w.dead, &d)
	w.addEvent(w.now, c.Seq, schemas.Event{Topic: d.Topic, ID: d.TaskID, State: schemas.StateRejected, Due: d.Due, Kind: d.Kind, Reason: d.Reason, Request: w.intake.known.position(c.Seq)})
}
