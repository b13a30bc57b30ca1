package dispatcher

import (
	"context"

	"github.com/cespare/xxhash/v2"

	"github.com/notyet/notyet/internal/faultpoint"
	"github.com/notyet/notyet/internal/sendlog"
)

// noteIntents writes to the send log, synced, which tasks are about to be sent. It tries again until
// that is done or ctx ends: without its intent a task is not staged, and so is never sent. A task
// without a record sends nothing, and has no intent.
func (f *fetcher) noteIntents(ctx context.Context, ready []*claimedTask) {
	intents := make([]sendlog.Intent, 0, len(ready))
	for _, t := range ready {
		if t.record != nil {
			intents = append(intents, sendlog.Intent{Seq: t.seq, Attempt: t.sendNumber(), Slot: int32(t.slot.number), Epoch: t.slot.epoch,
				Due: t.due, Topic: t.topic, ID: t.id, BodyHash: xxhash.Sum64(t.body)})
		}
	}
	f.until(ctx, "noting intents in the send log", func(ctx context.Context) error {
		if err := f.sent.AppendIntents(ctx, intents); err != nil {
			return err
		}
		return faultpoint.At(faultpoint.DispatcherLogged)
	})
}
