package scanner

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"
	"go.uber.org/zap"

	"github.com/notyet/notyet/internal/kafka"
)

// inspectPatience bounds how long the poller looks into gaps before it polls again.
const inspectPatience = 5 * time.Second

// gapsIn are the offsets that records, read from offset from on, jump over.
func gapsIn(from int64, records []*kgo.Record) (out []kafka.Gap) {
	for _, r := range records {
		if r.Offset > from {
			out = append(out, kafka.Gap{From: from, To: r.Offset})
		}
		from = r.Offset + 1
	}
	return out
}

// inspect answers those of a partition's polled records that lie before a batch whose records lie about their offsets, and that batch;
// nil: there is none. Otherwise a batch could hide what others have written behind it.
func (s *Scanner) inspect(ctx context.Context, key partitionKey, records []*kgo.Record) ([]*kgo.Record, *kafka.Unreadable, error) {
	from, reading := s.parts.polledTo(key)
	if !reading {
		return nil, nil, nil
	}
	gaps := gapsIn(from, records)
	if len(gaps) == 0 {
		return records, nil, nil
	}
	bad, err := kafka.Inspect(ctx, s.producer, s.decompressor, key.topic, key.partition, gaps)
	if err != nil {
		return nil, nil, err
	}
	if bad == nil {
		return records, nil, nil
	}
	s.logUnreadable(key, bad)
	if n := slices.IndexFunc(records, func(r *kgo.Record) bool { return r.Offset >= bad.First }); n >= 0 {
		records = records[:n]
	}
	return records, bad, nil
}

func (s *Scanner) logUnreadable(key partitionKey, bad *kafka.Unreadable) {
	s.log.Warn("a batch of the intake is not what it says, and becomes a dead letter", zap.String("topic", key.topic),
		zap.Int32("partition", key.partition), zap.Int64("offset", bad.First), zap.Int64("next_offset", bad.Next), zap.String("reason", bad.Reason))
}

// polledTo answers up to where a partition has been polled; false: nothing is read of it.
func (p *partitions) polledTo(key partitionKey) (int64, bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	r := p.readings[key]
	if r == nil || r.ended.Load() || p.s.halted.has(key) {
		return 0, false
	}
	return r.polled, true
}

// pollAgain has the next poll begin where the last one did.
func (p *partitions) pollAgain(key partitionKey) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if r := p.readings[key]; r != nil && !r.ended.Load() {
		p.skip[key] = r.polled
	}
}

// tooLarge is a batch that the client did not read.
func tooLarge(e *kgo.ErrDecompressTooLarge) *kafka.Unreadable {
	return &kafka.Unreadable{First: e.Offset, Next: e.NextOffset, Epoch: e.Epoch,
		Reason: fmt.Sprintf("it is larger than 64 MiB when it is decompressed, or cannot be decompressed (%v)", e)}
}

// stuck finds partitions of which the client hands over nothing, though there is something: a batch that fills a whole fetch and
// cannot be decoded. The client would ask for it for ever, and say nothing.
type stuck struct {
	polled map[*reading]int64 // where each was when it was last looked at

	mu    sync.Mutex
	found map[*reading]*kafka.Unreadable // the poller has not heard of them
}

// maxLooks bounds how many partitions one look asks about: all have more in Kafka while the database holds the scanner up.
const maxLooks = 16

// lookStuck looks for partitions that stand since it last did. It is bounded by checkPatience.
func (s *Scanner) lookStuck(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, checkPatience)
	defer cancel()
	still := s.parts.still(&s.stuck)
	if len(still) == 0 {
		return
	}
	ends, err := kafka.Ends(ctx, s.producer, s.cfg.Read...)
	if err != nil {
		return // without Kafka the scanner is not ready, and says so
	}
	looks := 0
	for r, at := range still { // in another order each time
		if looks >= maxLooks {
			return
		}
		if end := ends[r.key.topic][r.key.partition]; at >= end {
			continue
		}
		looks++
		bad, err := kafka.InspectAt(ctx, s.producer, s.decompressor, r.key.topic, r.key.partition, at)
		if err != nil || bad == nil {
			continue // not by a batch, or not yet known
		}
		s.stuck.mu.Lock()
		s.stuck.found[r] = bad
		s.stuck.mu.Unlock()
		s.parts.wakePoller()
	}
}

// still are the readings that are where they were at the last call, with nothing of them waiting to be stored.
func (p *partitions) still(since *stuck) map[*reading]int64 {
	p.mu.Lock()
	defer p.mu.Unlock()
	out, now := map[*reading]int64{}, map[*reading]int64{}
	for key, r := range p.readings {
		if r.ended.Load() || p.s.halted.has(key) {
			continue
		}
		now[r] = r.polled
		if before, known := since.polled[r]; known && before == r.polled && r.queued.Load() == 0 {
			out[r] = r.polled
		}
	}
	since.polled = now
	return out
}

func (p *partitions) wakePoller() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.wake()
}

// unstuck makes runs of the batches at which partitions stand. Its caller is the poller.
func (s *Scanner) unstuck() (runs []run) {
	s.stuck.mu.Lock()
	found := s.stuck.found
	s.stuck.found = map[*reading]*kafka.Unreadable{}
	s.stuck.mu.Unlock()
	for r, bad := range found {
		if at, reading := s.parts.polledTo(r.key); !reading || at < bad.First || at >= bad.Next {
			continue // it went on
		}
		s.logUnreadable(r.key, bad)
		if out, ok := s.parts.receivedUnreadable(r.key, bad); ok {
			runs = append(runs, out)
		}
	}
	return runs
}
