package dispatcher

import (
	"context"
	"errors"

	"go.uber.org/zap"

	"github.com/notyet/notyet/dispatcher/flight"
	"github.com/notyet/notyet/events"
	"github.com/notyet/notyet/schemas"
	"github.com/notyet/notyet/store/outbox"
)

// errNoRoom is why events are stored that the publisher did not take.
var errNoRoom = errors.New("there is no room for more events on their way")

// announcer publishes the last events of deliveries, and stores events that are not published in
// time. The results topic's promises report to flight.
type announcer struct {
	*shared
	outbox  outbox.Outbox
	flight  flight.Announcing
	results *events.Publisher
}

func newAnnouncer(sh *shared, fl flight.Announcing, results *events.Publisher) *announcer {
	return &announcer{shared: sh, outbox: outbox.New(sh.store), flight: fl, results: results}
}

// announce publishes the last events of a delivery, which counts as settled once the events are
// acknowledged or stored.
func (a *announcer) announce(d flight.Delivery) {
	if !a.results.Publish(d.Events(), func(err error) { a.flight.Announced(d, err) }) {
		a.flight.Announced(d, errNoRoom)
	}
}

// storeDeferred stores events of deliveries that were not published, piece by piece.
func (a *announcer) storeDeferred(ctx context.Context) {
	for range roundPieces {
		deferred := a.flight.Deferred(flight.PieceTasks)
		if deferred == nil {
			return
		}
		var events []schemas.Event
		for _, d := range deferred.List {
			events = append(events, d.Events()...)
		}
		boxes, err := a.outbox.Store(ctx, events, a.clock.Millis())
		if err != nil {
			a.metrics.Retries.Inc()
			if ctx.Err() == nil {
				a.log.Warn("storing events failed, trying again", zap.Error(err))
			}
			deferred.NotStored()
			return // the next round tries again
		}
		a.metrics.deferredEvents.Add(float64(len(events)))
		deferred.Stored()
		a.results.Stored(boxes)
	}
	a.kicks.Settle.Now()
}
