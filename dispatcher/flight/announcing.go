package flight

import (
	"slices"
	"time"

	"github.com/notyet/notyet/schemas"
	"github.com/notyet/notyet/task"
)

// A delivery's last events do not pass the outbox, because nothing is written for a task that is simply delivered: done waits for
// their acknowledgement instead. While the results topic does not answer, done must not wait. So events that find no room, that fail,
// or that are not acknowledged within UnresponsiveAfter are stored in the outbox, many in one row, and done moves on.

// Announcing is for the settle loop: the last events of deliveries.
type Announcing struct{ *machine }

// Events are the last events of the delivery.
func (d Delivery) Events() []schemas.Event { return deliveredEvents(d.task, d.at) }

// announces begins to wait for the acknowledgement of a delivery's last events.
func (fl Outcomes) announces(t *Task, at int64) Delivery {
	fl.unannounced.published[t] = announcement{at: at, since: time.Now()}
	return Delivery{t, at}
}

// Announced takes what became of a delivery's last events. The delivery is settled once they are acknowledged; if they were not, they are
// stored.
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

// deferSlow defers deliveries whose events have waited long for their acknowledgement. They must not hold up their slot. That
// matters most when it is given back: the next owner would send again what was delivered.
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

// Deferred are deliveries whose last events are to be stored.
type Deferred struct {
	*machine
	List []Delivery
}

// Deferred takes at most n deliveries whose last events are to be stored, less those whose slots were lost; nil: there were none.
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

// NotStored takes back what could not be stored.
func (d *Deferred) NotStored() {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.unannounced.deferred = slices.Concat(d.List, d.unannounced.deferred)
}

// deliveredEvents are the last events of a delivery that ends its task; at is when it was acknowledged.
func deliveredEvents(t *Task, at int64) []schemas.Event {
	e := schemas.Event{Topic: t.topic, ID: t.id, State: schemas.StateDispatched, Due: t.due, At: at, Attempt: t.attempt + 1, Lateness: max(at-t.at, 0)}
	events := []schemas.Event{e, e}
	events[1].State = schemas.StateSucceeded
	if !task.Published(t.settings.Events, schemas.StateDispatched) {
		events = events[1:]
	}
	return events
}
