package bench

import (
	"context"
	"fmt"
	"strconv"
	"sync/atomic"
	"time"

	"github.com/HdrHistogram/hdrhistogram-go"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/notyet/notyet/internal/kafka"
	"github.com/notyet/notyet/schemas"
)

// raw measures Kafka alone: it sends records like deliveries, with a client like a dispatcher's, to
// a topic like the target.
type raw struct {
	client   *kgo.Client
	requests *requests
	topic    string
}

// openRaw creates its topic and sends a record to each partition, so that connections and metadata
// are ready.
func (b *Bench) openRaw(ctx context.Context) (*raw, error) {
	r := &raw{topic: b.cfg.Topic + "-raw", requests: newRequests(b.cfg.Topic, b.cfg.ValueBytes, Variant{})}
	if err := b.topic(ctx, r.topic); err != nil {
		return nil, err
	}
	var err error
	// As in the dispatcher: one request at a time to each broker, so that records collect into the
	// next one.
	if r.client, err = kafka.NewProducer(b.cfg.Kafka, b.log, kgo.MaxProduceRequestsInflightPerBroker(1)); err != nil {
		return nil, err
	}
	for i := range 20 * b.cfg.Partitions {
		if err := r.client.ProduceSync(ctx, r.delivery(uint64(i))).FirstErr(); err != nil {
			r.client.Close()
			return nil, fmt.Errorf("sending to %s: %w", r.topic, err)
		}
	}
	return r, nil
}

// delivery returns a record like a dispatcher's.
func (r *raw) delivery(i uint64) *kgo.Record {
	now := time.Now().UnixMilli()
	rec := r.requests.record(r.topic, i, now)
	rec.Headers = schemas.AppendDelivery(nil, schemas.Delivery{
		ID: schemas.DefaultID(schemas.TopicIntake, int32(i%12), int64(i)), Due: now, Attempt: 1, Key: schemas.DeliveryKey([16]byte{1}, int32(i%12), int64(i), 1),
	})
	return rec
}

// rawRecords limits the measurement of the raw rate, for which some seconds suffice.
const rawRecords = 300_000

// rawRate sends n records, at most rawRecords, as fast as possible, and returns the rate per
// second.
func (b *Bench) rawRate(ctx context.Context, n int) (float64, error) {
	b.cfg.Say("measuring how fast Kafka alone takes the same records")
	r, err := b.openRaw(ctx)
	if err != nil {
		return 0, err
	}
	defer r.client.Close()
	n = min(n, rawRecords)
	records := make([]*kgo.Record, n) // made before, so that only sending is measured
	for i := range records {
		records[i] = r.delivery(uint64(i))
	}
	var failed atomic.Pointer[error]
	began := time.Now()
	for _, rec := range records {
		r.client.Produce(ctx, rec, func(_ *kgo.Record, err error) {
			if err != nil {
				failed.CompareAndSwap(nil, &err)
			}
		})
	}
	if err := r.client.Flush(ctx); err != nil {
		return 0, fmt.Errorf("sending to %s: %w", r.topic, err)
	}
	if err := failed.Load(); err != nil {
		return 0, fmt.Errorf("sending to %s: %w", r.topic, *err)
	}
	return float64(n) / time.Since(began).Seconds(), nil
}

// rawAcks sends rate records a second and returns how long Kafka took to acknowledge each, in
// microseconds.
func (b *Bench) rawAcks(ctx context.Context, rate int, last time.Duration) (*hdrhistogram.Histogram, error) {
	b.cfg.Say("measuring how fast Kafka alone acknowledges %d records a second, %s", rate, last)
	r, err := b.openRaw(ctx)
	if err != nil {
		return nil, err
	}
	defer r.client.Close()
	h := hdrhistogram.New(1, 60_000_000, 3)
	var failed error
	i := uint64(0)
	err = pace(ctx, rate, last, func() {
		sent := time.Now()
		r.client.Produce(ctx, r.delivery(i), func(_ *kgo.Record, err error) { // promises run one at a time
			if err != nil {
				failed = err
				return
			}
			_ = h.RecordValue(min(time.Since(sent).Microseconds(), h.HighestTrackableValue()))
		})
		i++
	})
	if err == nil {
		err = r.client.Flush(ctx)
	}
	if err == nil {
		err = failed
	}
	if err != nil {
		return nil, fmt.Errorf("sending %s records a second to %s: %w", strconv.Itoa(rate), r.topic, err)
	}
	return h, nil
}
