package bench

import (
	"context"
	"fmt"
	"strconv"
	"sync/atomic"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/notyet/notyet/internal/kafka"
	"github.com/notyet/notyet/schemas"
)

// reporter is a consumer of the target topic that reports deliveries as ok.
type reporter struct {
	b       *Bench
	client  *kgo.Client
	chosen  func(uint64) bool
	stop    context.CancelFunc
	stopped chan struct{}
	acked   atomic.Int64 // acknowledged reports
	failed  atomic.Pointer[error]
}

// report starts at a position of the target topic, and reports the tasks whose numbers are chosen.
func (b *Bench) report(ctx context.Context, from offsets, chosen func(uint64) bool) (*reporter, error) {
	starts := map[int32]kgo.Offset{}
	for p, at := range from {
		starts[p] = kgo.NewOffset().At(at)
	}
	kcfg := b.cfg.Kafka
	kcfg.Linger = intakeLinger
	client, err := kafka.NewProducer(kcfg, b.log, kgo.ConsumePartitions(map[string]map[int32]kgo.Offset{b.cfg.Topic: starts}))
	if err != nil {
		return nil, err
	}
	r := &reporter{b: b, client: client, chosen: chosen, stopped: make(chan struct{})}
	ctx, r.stop = context.WithCancel(ctx)
	go r.run(ctx)
	return r, nil
}

func (r *reporter) run(ctx context.Context) {
	defer close(r.stopped)
	for ctx.Err() == nil {
		r.client.PollFetches(ctx).EachRecord(func(delivery *kgo.Record) {
			if !r.chosen(number(delivery)) {
				return
			}
			r.client.Produce(ctx, okReport(r.b.cfg.Reports, delivery), func(_ *kgo.Record, err error) {
				if err != nil {
					r.failed.CompareAndSwap(nil, &err)
					return
				}
				r.acked.Add(1)
			})
		})
	}
}

// await waits until n deliveries are reported. Others would be delivered again after the run.
func (r *reporter) await(ctx context.Context, n int) error {
	sent, err := r.b.grow(ctx, n, time.Now(), pollEvery, func() (int, error) {
		if err := r.failed.Load(); err != nil {
			return 0, fmt.Errorf("reporting to %s: %w", r.b.cfg.Reports, *err)
		}
		return int(r.acked.Load()), nil
	})
	if err == nil && sent < n {
		err = fmt.Errorf("reporting to %s: %d of %d reports are sent, and none for %s", r.b.cfg.Reports, sent, n, r.b.cfg.IdleTimeout)
	}
	return err
}

func (r *reporter) close() {
	r.stop()
	<-r.stopped
	r.client.Close()
}

func okReport(topic string, delivery *kgo.Record) *kgo.Record {
	r := schemas.Report{Topic: delivery.Topic, Status: schemas.StatusOK, RetryAfter: schemas.NoRetryAfter}
	for _, h := range delivery.Headers {
		switch h.Key {
		case schemas.HeaderID:
			r.ID = string(h.Value)
		case schemas.HeaderAttempt:
			r.Attempt, _ = strconv.Atoi(string(h.Value))
		case schemas.HeaderDelivery:
			r.Delivery = string(h.Value)
		}
	}
	rec := schemas.EncodeReport(topic, r)
	rec.Key = delivery.Key
	return rec
}
