package dispatcher

import (
	"context"
	"maps"
	"slices"

	"go.uber.org/zap"
)

// sweep asks the database where every slot stands, and what comes next in it.
func (c *claimer) sweep(ctx context.Context) {
	had := c.flight.had()
	slots := slices.Sorted(maps.Keys(had))
	bound, cancel := context.WithTimeout(ctx, answerWithin)
	defer cancel()
	stand, next, err := c.store.Next(bound, slots)
	if err == nil {
		err = c.ownership.compare(ctx, stand, had)
	}
	if err != nil {
		if ctx.Err() == nil {
			c.log.Warn("asking the database for the next tasks failed", zap.Error(err))
		}
		return
	}
	c.flight.mu.Lock()
	defer c.flight.mu.Unlock()
	for slot, h := range had {
		if l := c.flight.slots[slot]; l != nil && l == h.slot {
			l.looked = true
		}
	}
	for _, n := range next {
		if l := c.flight.slots[n.Slot]; l != nil && n.Pos > l.claimed {
			if n.Pos < l.next && n.Pos <= c.clock.Millis() {
				c.metrics.swept.Inc() // overdue, and nobody had told of it
			}
			l.next = min(l.next, n.Pos)
			// At the first place behind what is claimed stands what came when its own place was claimed already: it may be due.
			if n.Pos == l.claimed+1 {
				l.urgent = min(l.urgent, c.clock.Millis())
			}
		}
	}
}
