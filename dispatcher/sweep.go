package dispatcher

import (
	"context"
	"maps"
	"slices"

	"go.uber.org/zap"
)

// sweep asks the database where every slot stands, and what comes next in it.
func (c *claimer) sweep(ctx context.Context) {
	before := c.flight.Known()
	slots := slices.Sorted(maps.Keys(before))
	bound, cancel := context.WithTimeout(ctx, answerWithin)
	defer cancel()
	stand, next, err := c.line.Next(bound, slots)
	if err == nil {
		err = c.ownership.compare(ctx, stand, before)
	}
	if err != nil {
		if ctx.Err() == nil {
			c.log.Warn("asking the database for the next tasks failed", zap.Error(err))
		}
		return
	}
	c.flight.Swept(before, next)
}
