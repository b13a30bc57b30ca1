package scanner

import (
	"context"
	"slices"
	"sync"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"
	"go.uber.org/zap"

	"github.com/notyet/notyet/internal/kafka"
)

// inspectPatience limits how long the poller looks into gaps before the next poll.
const inspectPatience = 5 * time.Second

// gapsIn returns the missing offsets, from offset from on, before and between records.
func gapsIn(from int64, records []*kgo.Record) (out []kafka.Gap) {
	for _, r := range records {
		if r.Offset > from {
			out = append(out, kafka.Gap{From: from, To: r.Offset})
		}
		from = max(from, r.Offset+1)
	}
	return out
}

// inspector looks into undecodable batches, and into batches whose records lie about their offsets.
type inspector struct {
	client       *kgo.Client
	decompressor kgo.Decompressor
	topics       []string
	parts        *partitions
	log          *zap.Logger

	polled map[*reading]int64 // where each reading was at the last look; only lookStuck uses it

	mu    sync.Mutex
	found map[*reading]*kafka.Unreadable // batches that hold partitions up: lookStuck adds them, the poller takes them
}

func newInspector(client *kgo.Client, decompressor kgo.Decompressor, topics []string, parts *partitions, log *zap.Logger) *inspector {
	return &inspector{client: client, decompressor: decompressor, topics: topics, parts: parts, log: log, found: map[*reading]*kafka.Unreadable{}}
}

// inspect looks into the gaps between a partition's polled records. A batch whose records claim
// wrong offsets makes such gaps, and could hide others' records behind it. inspect returns the
// batch, and the records before it; nil: there is none. After an error, the next call goes on from
// the same place. So a gap can be larger than the work of one call.
func (i *inspector) inspect(ctx context.Context, key partitionKey, records []*kgo.Record) ([]*kgo.Record, *kafka.Unreadable, error) {
	_, from, reading := i.parts.readTo(key)
	if !reading {
		return nil, nil, nil
	}
	gaps := gapsIn(from, records)
	if len(gaps) == 0 {
		return records, nil, nil
	}
	found, err := kafka.Inspect(ctx, i.client, i.decompressor, key.topic, key.partition, gaps)
	i.parts.inspected(key, found.To)
	if src, _ := i.parts.source(key); src != nil && found.Start > 0 { // of what was never stored, nobody missed it
		logDeleted(i.log, key, gaps[0].From, found.Start)
	}
	if err != nil {
		return nil, nil, err
	}
	bad := found.Bad
	if bad == nil {
		return records, nil, nil
	}
	i.logUnreadable(key, bad)
	if n := slices.IndexFunc(records, func(r *kgo.Record) bool { return r.Offset >= bad.First }); n >= 0 {
		records = records[:n]
	}
	return records, bad, nil
}

func (i *inspector) logUnreadable(key partitionKey, bad *kafka.Unreadable) {
	i.log.Warn("a batch of the intake is not what it says, and becomes a dead letter", zap.String("topic", key.topic),
		zap.Int32("partition", key.partition), zap.Int64("offset", bad.First), zap.Int64("next_offset", bad.Next), zap.String("reason", bad.Reason))
}

func tooLarge(e *kgo.ErrDecompressTooLarge) *kafka.Unreadable {
	return &kafka.Unreadable{First: e.Offset, Next: e.NextOffset, Epoch: e.Epoch, Reason: kafka.TooLarge(e)}
}

// maxLooks limits the partitions of one look. With a slow database, all have more records.
const maxLooks = 16

// lookStuck finds partitions with more records, of which the client has handed over none since the
// last look. An undecodable batch that fills a whole fetch may be the reason: the client would
// fetch the same batch for ever, without an error. A look takes at most checkPatience.
func (i *inspector) lookStuck(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, checkPatience)
	defer cancel()
	var still map[*reading]int64
	still, i.polled = i.parts.still(i.polled)
	if len(still) == 0 {
		return
	}
	ends, _ := kafka.Ends(ctx, i.client, i.topics...) // of those that answer
	looks := 0
	for r, at := range still { // the order differs each time, so all get their turn
		if looks >= maxLooks {
			return
		}
		if end := ends[r.key.topic][r.key.partition]; at >= end {
			continue
		}
		looks++
		bad, err := kafka.InspectAt(ctx, i.client, i.decompressor, r.key.topic, r.key.partition, at)
		if err != nil || bad == nil {
			continue // not by a batch, or not yet known
		}
		i.mu.Lock()
		i.found[r] = bad
		i.mu.Unlock()
		i.parts.wakePoller()
	}
}

func (i *inspector) takeFound() map[*reading]*kafka.Unreadable {
	i.mu.Lock()
	defer i.mu.Unlock()
	found := i.found
	i.found = map[*reading]*kafka.Unreadable{}
	return found
}
