package dispatcher

import (
	"context"
	"slices"
	"sync"
	"time"

	"go.uber.org/zap"

	"github.com/notyet/notyet/events"
	"github.com/notyet/notyet/schemas"
	"github.com/notyet/notyet/task"
)

// announcer publishes the last events of deliveries. Settling begins an announcement and looks after those that take long; the results
// topic's promises end them.
type announcer struct {
	*shared
	flight   *inFlight
	results  *events.Publisher
	deferred deferred

	mu          sync.Mutex // guards unconfirmed alone
	unconfirmed map[*claimedTask]announcement
}

func newAnnouncer(fl *inFlight, results *events.Publisher) *announcer {
	return &announcer{shared: fl.shared, flight: fl, results: results, unconfirmed: map[*claimedTask]announcement{}}
}

// A delivery's last events do not pass the outbox, because nothing is written for a task that is simply delivered: done waits for
// their acknowledgement instead. While the results topic does not answer, done must not wait. So events that find no room, that fail,
// or that are not acknowledged within UnresponsiveAfter are stored in the outbox, many in one row, and done moves on.

// deferred are deliveries whose last events go to the outbox. Promises and the settle loop add, the settle loop takes.
type deferred struct {
	mu   sync.Mutex
	list []delivery
}

type delivery struct {
	task *claimedTask
	at   int64 // when it was acknowledged, Unix ms
}

func (q *deferred) add(d delivery) {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.list = append(q.list, d)
}

// take removes at most n.
func (q *deferred) take(n int) []delivery {
	q.mu.Lock()
	defer q.mu.Unlock()
	n = min(n, len(q.list))
	out := q.list[:n:n]
	if q.list = q.list[n:]; len(q.list) == 0 {
		q.list = nil
	}
	return out
}

// putBack returns what could not be stored.
func (q *deferred) putBack(list []delivery) {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.list = slices.Concat(list, q.list)
}

// announce publishes the last events of a delivery, which counts as settled once they are acknowledged or stored.
func (a *announcer) announce(t *claimedTask, at int64) {
	a.begin(t, at)
	published := a.results.Publish(deliveredEvents(t, at), func(err error) {
		a.end(t)
		a.flight.mu.Lock()
		waiting := t.status == announcing
		if waiting && err == nil {
			t.status = settled
		}
		a.flight.mu.Unlock()
		if waiting && err != nil {
			a.deferred.add(delivery{t, at})
		}
		a.kicks.settle.now()
	})
	if !published {
		a.end(t)
		a.deferred.add(delivery{t, at})
		a.kicks.settle.now()
	}
}

func (a *announcer) begin(t *claimedTask, at int64) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.unconfirmed[t] = announcement{at: at, since: time.Now()}
}

func (a *announcer) end(t *claimedTask) {
	a.mu.Lock()
	defer a.mu.Unlock()
	delete(a.unconfirmed, t)
}

// checkUnconfirmed finds deliveries whose events have waited long for their acknowledgement. They must not hold up their slot. That
// matters most when it is given back: the next owner would send again what was delivered. inFlight.mu is held.
func (a *announcer) checkUnconfirmed() {
	a.mu.Lock()
	defer a.mu.Unlock()
	for t, said := range a.unconfirmed {
		patience := a.cfg.UnresponsiveAfter
		switch leaving := t.slot.leavingFor(); {
		case leaving > a.cfg.DrainTimeout/2:
			patience = 0
		case leaving > 0 || a.stopping.Load():
			patience = min(patience, a.cfg.DrainTimeout/8)
		}
		if time.Since(said.since) >= patience {
			delete(a.unconfirmed, t)
			a.deferred.add(delivery{t, said.at})
		}
	}
}

// storeDeferred stores events of deliveries that were not published, piece by piece.
func (a *announcer) storeDeferred(ctx context.Context) {
	for range roundPieces {
		list := a.deferred.take(pieceTasks)
		if len(list) == 0 {
			return
		}
		a.flight.mu.Lock()
		list = slices.DeleteFunc(list, func(e delivery) bool { return e.task.status != announcing || e.task.slot.abandoned })
		a.flight.mu.Unlock()
		var events []schemas.Event
		for _, e := range list {
			events = append(events, deliveredEvents(e.task, e.at)...)
		}
		boxes, err := a.store.StoreEvents(ctx, events, a.clock.Millis())
		if err != nil {
			a.metrics.retries.Inc()
			if ctx.Err() == nil {
				a.log.Warn("storing events failed, trying again", zap.Error(err))
			}
			a.deferred.putBack(list)
			return // the next round tries again
		}
		a.metrics.deferredEvents.Add(float64(len(events)))
		a.flight.mu.Lock()
		for _, e := range list {
			if e.task.status == announcing {
				e.task.status = settled
			}
		}
		a.flight.mu.Unlock()
		a.results.Stored(boxes)
	}
	a.kicks.settle.now()
}

// announcement is a delivery whose last events are with the producer.
type announcement struct {
	at    int64 // when it was acknowledged, Unix ms: long ago, where the send log proves it
	since time.Time
}

// deliveredEvents are the last events of a delivery that ends its task; at is when it was acknowledged.
func deliveredEvents(t *claimedTask, at int64) []schemas.Event {
	e := schemas.Event{Topic: t.topic, ID: t.id, State: schemas.StateDispatched, Due: t.due, At: at, Attempt: t.attempt + 1, Lateness: max(at-t.at, 0)}
	events := []schemas.Event{e, e}
	events[1].State = schemas.StateSucceeded
	if !task.Published(t.settings.Events, schemas.StateDispatched) {
		events = events[1:]
	}
	return events
}
