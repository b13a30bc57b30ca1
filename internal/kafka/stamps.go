package kafka

import (
	"context"
	"sync"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"
)

// stamps gives each record the time of Config.Now as its timestamp at every producing.
type stamps struct{ now func() time.Time }

// OnProduceRecordBuffered implements kgo.HookProduceRecordBuffered.
func (s stamps) OnProduceRecordBuffered(r *kgo.Record) {
	if s.now != nil {
		r.Timestamp = s.now().Truncate(time.Millisecond)
	}
	r.Context = context.Background() // an earlier producer's may have ended
}

// giveUp ends the try with a record after patience, or up to a sixteenth of it later.
//
// The client's own bound, kgo.RecordDeliveryTimeout, subtracts the record's timestamp from this
// machine's wall clock. The two are different clocks here, and the wall clock may step. So each
// record has a context with an end by the monotonic clock. Records share the context of their slice
// of time, because a timer for each would cost more than the record.
type giveUp struct {
	patience time.Duration

	mu    sync.Mutex
	ctx   context.Context
	until time.Time // ctx is for records that are produced before
}

// OnProduceRecordBuffered implements kgo.HookProduceRecordBuffered, after the hook of stamps.
func (b *giveUp) OnProduceRecordBuffered(r *kgo.Record) { r.Context = b.context(time.Now()) }

func (b *giveUp) context(now time.Time) context.Context {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.ctx == nil || !now.Before(b.until) {
		slice := b.patience / 16
		ctx, cancel := context.WithTimeout(context.Background(), b.patience+slice)
		context.AfterFunc(ctx, cancel)
		b.ctx, b.until = overdue{ctx}, now.Add(slice)
	}
	return b.ctx
}

type overdue struct{ context.Context }

// Err implements context.Context.
func (o overdue) Err() error {
	if o.Context.Err() == nil {
		return nil
	}
	return kgo.ErrRecordTimeout
}
