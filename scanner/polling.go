package scanner

import (
	"context"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/notyet/notyet/internal/kafka"
)

// polling prepares the next poll. It begins the partitions to read again, and returns a context
// that ends when there are more of them, or after atMost. It calls move with the offsets to read on
// from, with the halted partitions, and with a function that lists where each partition is read
// from next. No partition is assigned or revoked while move runs.
func (p *partitions) polling(ctx context.Context, atMost time.Duration, move func(to kafka.Offsets, halted map[partitionKey]bool, at func(func(string, int32, kgo.EpochOffset)))) (context.Context, context.CancelFunc) {
	p.mu.Lock()
	defer p.mu.Unlock()
	ctx, p.wake = context.WithTimeout(ctx, atMost)
	offsets := kafka.Offsets{}
	for key, to := range p.again {
		p.begun(key, to)
		offsets.Set(key.topic, key.partition, to)
	}
	for key, to := range p.skip {
		delete(p.skip, key)
		offsets.Set(key.topic, key.partition, to)
	}
	move(offsets, p.halted.keys(), p.at)
	return ctx, p.wake
}

// received makes a stretch of polled records. False: their reading is over, or halted.
func (p *partitions) received(records []*kgo.Record) (stretch, bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	r := p.readings[partitionKey{records[0].Topic, records[0].Partition}]
	if r == nil || r.ended.Load() || p.halted.has(r.key) {
		return stretch{}, false
	}
	r.queued.Add(1)
	return r.next(records), true
}

// receivedUnreadable makes a stretch of an unreadable batch. The next poll goes on behind it.
func (p *partitions) receivedUnreadable(key partitionKey, bad *kafka.Unreadable) (stretch, bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	r := p.readings[key]
	if r == nil || r.ended.Load() || p.halted.has(key) {
		return stretch{}, false
	}
	r.queued.Add(1)
	out := r.nextUnreadable(bad)
	p.skip[key] = out.to
	return out, true
}

// readTo returns the offsets up to which a partition was polled, and polled or inspected. False: it
// is not being read.
func (p *partitions) readTo(key partitionKey) (polled, inspected int64, reading bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	r := p.readings[key]
	if r == nil || r.ended.Load() || p.halted.has(key) {
		return 0, 0, false
	}
	return r.polled, max(r.polled, r.inspected), true
}

// inspected notes up to where a partition was inspected. A poll may still repeat earlier offsets.
func (p *partitions) inspected(key partitionKey, to int64) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if r := p.readings[key]; r != nil {
		r.inspected = max(r.inspected, to)
	}
}

// pollAgain makes the next poll of a partition begin where the last one did.
func (p *partitions) pollAgain(key partitionKey) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if r := p.readings[key]; r != nil && !r.ended.Load() {
		p.skip[key] = r.polled
	}
}

// still returns the readings without progress or queued records since before, and all offsets.
func (p *partitions) still(before map[*reading]int64) (still, now map[*reading]int64) {
	p.mu.Lock()
	defer p.mu.Unlock()
	still, now = map[*reading]int64{}, map[*reading]int64{}
	for key, r := range p.readings {
		if r.ended.Load() || p.halted.has(key) {
			continue
		}
		now[r] = r.polled
		if at, known := before[r]; known && at == r.polled && r.queued.Load() == 0 {
			still[r] = r.polled
		}
	}
	return still, now
}

func (p *partitions) wakePoller() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.wake()
}
