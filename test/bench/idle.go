package bench

import (
	"context"
	"time"
)

// settleDown is how long after the warm-up an installation counts as idle.
const settleDown = 5 * time.Second

// Idle measures what the processes use while the installation has no load.
func (b *Bench) Idle(ctx context.Context, last time.Duration) (*Result, error) {
	r := newResult("idle", 0)
	begin := time.Now().Add(settleDown)
	b.cfg.Say("watching an idle installation for %s", last)
	return r, b.watch(ctx, begin, begin.Add(last)).into(r, b, 0)
}
