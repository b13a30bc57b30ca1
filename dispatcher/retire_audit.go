package dispatcher

import (
	"context"
	"time"
)

// retireAudit forgets old entries of the audit log. Like dead letters they have no slots, so it is for the owner of slot 0.
func (d *Dispatcher) retireAudit(ctx context.Context) error {
	slots := slotsOf(d.flight.views())
	mine := len(slots) > 0 && slots[0] == 0
	for more := mine && d.cfg.AuditRetention > 0; more && ctx.Err() == nil; {
		began := time.Now()
		var err error
		if _, more, err = d.store.RetireAudit(ctx, d.clock.Now().Add(-d.cfg.AuditRetention).UnixMilli()); err != nil {
			return err
		}
		afterBite(ctx, time.Since(began))
	}
	return nil
}
