package dispatcher

import (
	"context"
	"slices"
	"sync"
	"time"

	"go.uber.org/zap"

	"github.com/notyet/notyet/schemas"
	"github.com/notyet/notyet/store"
)

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
func (d *Dispatcher) announce(t *claimedTask, at int64) {
	published := d.results.Publish(deliveredEvents(t, at), func(err error) {
		d.mu.Lock()
		waiting := t.status == telling
		delete(d.untold, t)
		if waiting && err == nil {
			t.status = settled
		}
		d.mu.Unlock()
		if waiting && err != nil {
			d.pending.add(delivery{t, at})
		}
		d.settleKick.now()
	})
	if !published {
		d.mu.Lock()
		delete(d.untold, t)
		d.mu.Unlock()
		d.pending.add(delivery{t, at})
		d.settleKick.now()
	}
}

// checkUntold finds deliveries whose events have not been acknowledged for long: they must not hold up their line, still less one that is
// to be given back: where it does not drain, its next owner sends again what was delivered. mu is held.
func (d *Dispatcher) checkUntold() {
	for t, told := range d.untold {
		patience := d.cfg.UnresponsiveAfter
		if d.stopping.Load() || !t.slot.leaving.IsZero() {
			patience = min(patience, d.cfg.DrainTimeout/8)
		}
		if time.Since(told.since) > patience {
			delete(d.untold, t)
			d.pending.add(delivery{t, told.at})
		}
	}
}

// storeDeferred stores events of deliveries that were not published, piece by piece.
func (d *Dispatcher) storeDeferred(ctx context.Context) {
	for range roundPieces {
		list := d.pending.take(pieceTasks)
		if len(list) == 0 {
			return
		}
		d.mu.Lock()
		list = slices.DeleteFunc(list, func(e delivery) bool { return e.task.status != telling || e.task.slot.abandoned })
		d.mu.Unlock()
		var events []schemas.Event
		for _, e := range list {
			events = append(events, deliveredEvents(e.task, e.at)...)
		}
		boxes, err := d.store.StoreEvents(ctx, events, d.clock.Millis())
		if err != nil {
			d.metrics.retries.Inc()
			if ctx.Err() == nil {
				d.log.Warn("storing events failed, trying again", zap.Error(err))
			}
			d.pending.putBack(list)
			return // the next round tries again
		}
		d.metrics.deferredEvents.Add(float64(len(events)))
		d.mu.Lock()
		for _, e := range list {
			if e.task.status == telling {
				e.task.status = settled
			}
		}
		d.mu.Unlock()
		d.results.Stored(boxes)
	}
	d.settleKick.now()
}

// leftoverSources lets one dispatcher look after the events of exits that were left in the outbox: the owner of slot 0.
func (d *Dispatcher) leftoverSources() []int {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.lines[0] == nil {
		return nil
	}
	return []int{store.TransitionSource}
}
