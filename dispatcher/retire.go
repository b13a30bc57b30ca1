package dispatcher

import (
	"context"
	"time"

	"go.uber.org/zap"

	"github.com/notyet/notyet/store"
)

// retireLoop forgets tasks that ended longer ago than the retention: each owner those of its slots, and the owner of slot 0
// also those that ended out of the line. It goes in small bites with pauses, so that deliveries do not notice.
func (d *Dispatcher) retireLoop(ctx context.Context) {
	const every, bite, pause = time.Minute, 1000, 50 * time.Millisecond
	tick := time.NewTicker(every)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
		before := d.clock.Now().Add(-d.cfg.Retention).UnixMilli()
		for _, slot := range d.retirable() {
			for n := bite; n == bite && ctx.Err() == nil; sleep(ctx, pause) {
				var err error
				if n, err = d.store.Retire(ctx, slot, before, bite); err != nil {
					if ctx.Err() == nil {
						d.log.Warn("retiring ended tasks failed, trying again later", zap.Int("slot", slot), zap.Error(err))
					}
					break
				}
				d.metrics.retired.Add(float64(n))
			}
		}
	}
}

func (d *Dispatcher) retirable() []int {
	slots := slotsOf(d.views())
	if len(slots) > 0 && slots[0] == 0 {
		slots = append(slots, store.OutOfLine)
	}
	return slots
}
