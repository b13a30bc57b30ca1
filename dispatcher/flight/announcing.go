package flight

import (
	"slices"
	"time"

	"github.com/notyet/notyet/schemas"
	"github.com/notyet/notyet/task"
)

// Nothing is written for a task that is simply delivered, so the last events of a delivery do not
// pass the outbox: done waits for their acknowledgement. Done must not wait while the results topic
// does not answer. So events are stored in the outbox, many in one row, if they find no room, fail,
// or are not acknowledged within UnresponsiveAfter.

// Announcing is for the settle loop: the last events of deliveries.
type Announcing struct{ *machine }

// Events are the last events of the delivery.
func (d Delivery) Events() []schemas.Event { return deliveredEvents(d.task, d.at) }

// announces begins to wait for the acknowledgement of a delivery's last events.
func (fl Outcomes) announces(t *Task, at int64) Delivery {
	fl.unannounced.published[t] = announcement{at: at, since: time.Now()}
	return Delivery{t, at}
}

// Announced takes the outcome of publishing the last events of a delivery. Acknowledged events
// settle the delivery, and others are stored.
func (fl Announcing) Announced(d Delivery, err error) {
	fl.mu.Lock()
	defer fl.mu.Unlock()
	_, waited := fl.unannounced.published[d.task]
	delete(fl.unannounced.published, d.task)
	switch {
	case d.task.status != announcing:
	case err == nil:
		d.task.status = settled
	case waited: // otherwise it is deferred already
		fl.unannounced.deferred = append(fl.unannounced.deferred, d)
	}
	fl.kicks.Settle.Now()
}

// deferSlow defers deliveries with a long wait for an acknowledgement: they must not hold up their
// slot. A slot is most urgent when another dispatcher is to have it, because its next owner would
// deliver again.
func (fl Outcomes) deferSlow() {
	for t, said := range fl.unannounced.published {
		patience := fl.cfg.UnresponsiveAfter
		switch leaving := t.slot.leavingFor(); {
		case leaving > fl.cfg.DrainTimeout/2:
			patience = 0
		case leaving > 0 || fl.stopping.Load():
			patience = min(patience, fl.cfg.DrainTimeout/8)
		}
		if time.Since(said.since) >= patience {
			delete(fl.unannounced.published, t)
			fl.unannounced.deferred = append(fl.unannounced.deferred, Delivery{t, said.at})
		}
	}
}

// Deferred are deliveries with last events to be stored.
type Deferred struct {
	*machine
	List []Delivery
}

// Deferred takes at most n deliveries to store the last events of, less those of lost slots; nil:
// there were none.
func (fl Announcing) Deferred(n int) *Deferred {
	fl.mu.Lock()
	defer fl.mu.Unlock()
	u := &fl.unannounced
	if n = min(len(u.deferred), n); n == 0 {
		return nil
	}
	list := u.deferred[:n:n]
	if u.deferred = u.deferred[n:]; len(u.deferred) == 0 {
		u.deferred = nil
	}
	return &Deferred{fl.machine, slices.DeleteFunc(list, func(d Delivery) bool { return d.task.status != announcing || d.task.slot.abandoned })}
}

// Stored settles the deliveries, because their last events are stored.
func (d *Deferred) Stored() {
	d.mu.Lock()
	defer d.mu.Unlock()
	for _, one := range d.List {
		if one.task.status == announcing {
			one.task.status = settled
		}
	}
}

// NotStored takes back the deliveries of a failed storing.
func (d *Deferred) NotStored() {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.unannounced.deferred = slices.Concat(d.List, d.unannounced.deferred)
}

// deliveredEvents are the last events of a final delivery, acknowledged at an instant.
func deliveredEvents(t *Task, at int64) []schemas.Event {
	e := schemas.Event{Topic: t.topic, ID: t.id, State: schemas.StateDispatched, Due: t.due, At: at, Attempt: t.attempt + 1, Lateness: max(at-t.at, 0)}
	events := []schemas.Event{e, e}
	events[1].State = schemas.StateSucceeded
	if !task.Published(t.settings.Events, schemas.StateDispatched) {
		events = events[1:]
	}
	return events
}
