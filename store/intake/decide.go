package intake

import (
	"time"

	"github.com/notyet/notyet/schemas"
	"github.com/notyet/notyet/store/internal/handle"
	"github.com/notyet/notyet/task"
)

// decideAll runs the changes of an identity through the state machine, in order: first the waiting
// ones, then those of the batch. Once a request must wait, all requests behind it wait too. A
// report never waits behind a request, because the request waits for the very delivery.
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

// decideDue runs an identity's waiting changes through the state machine.
func (w *work) decideDue(id *identity) {
	w.closeFullBoxes()
	id.now = id.before
	for _, h := range id.queue.due {
		if w.merged.enough() && !h.report {
			return // they wait for the next transaction
		}
		if w.decideOne(id, h.change, false) {
			id.queue.remove(h)
			if cancel, noted := id.notedCancel(h.change); noted { // in the same box, so the answers stay in order
				w.decideOne(id, cancel, false)
			}
		} else if !h.report { // reports come first, so all that follow are requests: they stay in the table as they are
			return
		}
	}
}

func (w *work) decideOne(id *identity, c task.Change, queued bool) (decided bool) {
	w.applyEvidence(id, &c)
	if w.intake.known.foreign(c.Report, id.now) {
		return true
	}
	if queued && c.Report == nil {
		return false
	}
	phase := w.phase(id)
	// Unless the task is surely sent once, another record of it may follow, as from the next
	// owner's memory, after later uses of the id. So such a report waits for the owner, and so does
	// one behind another report.
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
	if id.now != id.before {
		w.keepSent(id.now)
	}
	w.merged.bytes += v.Cost
	if v.ToldTooLate {
		w.taken = append(w.taken, id.now.Seq)
	}
	if v.Unread.At > 0 { // the row is not written anew: its owner may have the task
		id.now.Unread = v.Unread
		w.unread.add(id.now)
	}
	w.addOutcome(c, v)
	return true
}

func (w *work) addOutcome(c task.Change, v task.Verdict) {
	if v.Dead != nil {
		v.Dead.DiedAt = w.now
		w.keep(c, v.Dead)
	}
	if (c.Request != nil || c.Unread != "") && v.Event.State != "" {
		asked := c.Seq
		if c.CancelledBy > 0 && c.Request != nil && c.Request.Op == schemas.OpCancel {
			asked = c.CancelledBy
		}
		v.Event.Request = w.intake.known.position(asked)
	}
	w.addEvent(w.now, c.Seq, v.Event)
}

// reject keeps the dead letter of a request that the scanner has rejected, and tells of it. A
// letter without a target belongs to the intake.
func (w *work) reject(c task.Change) {
	w.closeFullBoxes()
	d := *c.Rejected
	if d.DiedAt = w.now; d.Topic == "" {
		d.Topic = w.intake.known.topic(c.Seq)
	}
	w.keep(c, &d)
	w.addEvent(w.now, c.Seq, schemas.Event{
		Topic: c.Rejected.Topic, ID: d.TaskID, State: schemas.StateRejected, Due: d.Due, Kind: d.Kind, Reason: d.Reason, Request: w.intake.known.position(c.Seq),
	})
}

// mayBeForgotten tells whether a change is a cancel or a stop to remember for an unknown task,
// while a slot is unsure: the database may have forgotten the task, and a dispatcher have it.
// Nothing waits for an unknown task: a request that only schedules does not look for waiting ones.
func (w *work) mayBeForgotten(t *task.Task, c task.Change) bool {
	if t != nil || c.Request == nil || c.Request.Op != schemas.OpCancel && c.Request.Op != schemas.OpStop || c.Request.Version < 0 || w.intake.evidence != nil {
		return false
	}
	for _, s := range w.slots {
		if s.Unsure {
			return true
		}
	}
	return false
}

// proven returns the proof about a task, if it goes beyond the row.
func proven(e Evidence, t *task.Task) (task.Proof, bool) {
	p, ok := e.Of(t)
	return p, ok && p.Exceeds(t)
}

// applyEvidence brings a task to where its deliveries had taken it before the change c; nil: now.
func (w *work) applyEvidence(id *identity, c *task.Change) {
	if w.intake.evidence == nil || id.now == nil || w.phase(id) == task.Ended {
		return
	}
	p, ok := proven(w.intake.evidence, id.now)
	if !ok || c != nil && c.Request != nil && p.Follows(c.Request) {
		return
	}
	v := task.Prove(id.now, p, w.now)
	id.now = v.Next
	if v.Dead != nil {
		w.dead = append(w.dead, v.Dead)
	}
	if v.Event.State != "" {
		w.proven = append(w.proven, v.Event)
	}
}
