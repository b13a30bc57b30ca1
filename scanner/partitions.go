package scanner

import (
	"context"
	"fmt"
	"sync"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"
	"go.uber.org/zap"

	"github.com/notyet/notyet/internal/faultpoint"
	"github.com/notyet/notyet/internal/kafka"
	"github.com/notyet/notyet/store"
)

type partitionKey struct {
	topic     string
	partition int32
}

// partitions knows, for each assigned intake partition, which source it is and how far the database has it. The database
// says where to begin; the offsets that Kafka keeps for the group are written for lag monitors and never read.
type partitions struct {
	s         *Scanner
	mu        sync.Mutex
	topicIDs  map[string][16]byte
	sources   map[partitionKey]*store.Source // of the assigned partitions; nil: not asked for yet
	committed map[string]map[int32]kgo.EpochOffset
	// outdated holds, for a partition that is read again from further back, the offset behind the last record that was read
	// before. More of that reading may be on its way, and must not be stored over what is missing.
	outdated map[partitionKey]int64
}

func newPartitions(s *Scanner) *partitions {
	return &partitions{s: s, topicIDs: map[string][16]byte{}, sources: map[partitionKey]*store.Source{}, committed: map[string]map[int32]kgo.EpochOffset{}, outdated: map[partitionKey]int64{}}
}

// begin is called with newly assigned partitions and the offsets of the group; it answers where to fetch from. The group's
// never pass the database's, so a database that stands before them was restored, and what lies between is read again.
func (p *partitions) begin(ctx context.Context, offsets map[string]map[int32]kgo.Offset) (map[string]map[int32]kgo.Offset, error) {
	err := p.s.retry(ctx, "looking up where the intake stands", func() error { return p.lookUp(ctx, offsets) })
	if err != nil {
		return nil, err
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	for topic, parts := range offsets {
		for part, committed := range parts {
			at, stored := kgo.NewOffset().AtStart(), int64(0)
			if src := p.sources[partitionKey{topic, part}]; src != nil {
				at, stored = kgo.NewOffset().At(src.Next), src.Next
				p.s.log.Info("taking an intake partition", zap.String("topic", topic), zap.Int32("partition", part), zap.Int64("offset", src.Next))
			}
			if again := committed.EpochOffset().Offset - stored; again > 0 {
				p.s.metrics.reread.Add(float64(again))
				p.s.log.Warn("the database is older than what was stored before: reading the intake again from where it stands",
					zap.String("topic", topic), zap.Int32("partition", part), zap.Int64("offset", stored), zap.Int64("offsets_again", again))
			}
			parts[part] = at
		}
	}
	return offsets, nil
}

func (p *partitions) lookUp(ctx context.Context, offsets map[string]map[int32]kgo.Offset) error {
	var topics []string
	for topic := range offsets {
		topics = append(topics, topic)
	}
	ids, err := kafka.TopicIDs(ctx, p.s.producer, topics...)
	if err != nil {
		return err
	}
	for _, topic := range topics {
		if ids[topic] == [16]byte{} { // going on without it would take the partition for a new one and store all of it again
			return fmt.Errorf("kafka does not know topic %q at the moment", topic)
		}
	}
	known, err := p.s.store.Sources(ctx)
	if err != nil {
		return err
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	for topic, id := range ids {
		p.topicIDs[topic] = id
	}
	for topic, parts := range offsets {
		for part := range parts {
			p.sources[partitionKey{topic, part}] = nil
			delete(p.outdated, partitionKey{topic, part})
		}
	}
	for _, src := range known {
		_, assigned := offsets[src.Topic][src.Partition]
		if assigned && src.TopicID == p.topicIDs[src.Topic] {
			p.sources[partitionKey{src.Topic, src.Partition}] = &src
		}
	}
	return nil
}

// source answers a partition's source, made on first use to begin at offset first.
func (p *partitions) source(ctx context.Context, key partitionKey, first int64) (store.Source, error) {
	p.mu.Lock()
	src, id := p.sources[key], p.topicIDs[key.topic]
	p.mu.Unlock()
	if src != nil {
		return *src, nil
	}
	made, err := p.s.store.Source(ctx, key.topic, id, key.partition, first)
	if err != nil {
		return store.Source{}, err
	}
	p.set(key, made)
	return made, nil
}

// set notes a source, unless its partition has been revoked while a batch of it was at hand.
func (p *partitions) set(key partitionKey, src store.Source) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if _, assigned := p.sources[key]; assigned {
		p.sources[key] = &src
	}
}

// reread forgets what is known of a partition after the database said that it is elsewhere, and reads it anew. A database
// that stands further back than the records at hand was restored: the intake is then read again from where it stands, and
// the records at hand, which end before behind, are to be thrown away: true.
func (p *partitions) reread(ctx context.Context, key partitionKey, at, behind int64) (bool, error) {
	p.mu.Lock()
	id := p.topicIDs[key.topic]
	p.mu.Unlock()
	src, err := p.s.store.Source(ctx, key.topic, id, key.partition, at)
	if err != nil {
		return false, err
	}
	p.set(key, src)
	if src.Next < at {
		p.mu.Lock()
		p.outdated[key] = behind
		p.mu.Unlock()
		p.s.metrics.reread.Add(float64(at - src.Next))
		p.s.log.Warn("the database is older than what was stored before: reading the intake again from where it stands",
			zap.String("topic", key.topic), zap.Int32("partition", key.partition), zap.Int64("offset", src.Next), zap.Int64("offsets_again", at-src.Next))
		p.s.consumer.SetOffsets(map[string]map[int32]kgo.EpochOffset{key.topic: {key.partition: {Epoch: -1, Offset: src.Next}}})
	}
	return src.Next < at, nil
}

// isOutdated says whether a run that has just come in was read before its partition was set back. The new reading is known
// by its step back: it begins at or before the last record of the old one, whatever gaps there are.
func (p *partitions) isOutdated(run []*kgo.Record) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	key := keyOf(run)
	behind, ok := p.outdated[key]
	if !ok {
		return false
	}
	if run[0].Offset < behind {
		delete(p.outdated, key)
		return false
	}
	p.outdated[key] = run[len(run)-1].Offset + 1
	return true
}

// stored notes how far the database has a partition.
func (p *partitions) stored(key partitionKey, src store.Source, epoch int32) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.sources[key] != nil {
		p.sources[key] = &src
	}
	if p.committed[key.topic] == nil {
		p.committed[key.topic] = map[int32]kgo.EpochOffset{}
	}
	p.committed[key.topic][key.partition] = kgo.EpochOffset{Epoch: epoch, Offset: src.Next}
}

// drop forgets revoked partitions. Batches in flight may still be stored: the offsets in the database let it happen once.
func (p *partitions) drop(_ context.Context, _ *kgo.Client, gone map[string][]int32) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for topic, parts := range gone {
		for _, part := range parts {
			delete(p.sources, partitionKey{topic, part})
			delete(p.outdated, partitionKey{topic, part})
			delete(p.committed[topic], part)
		}
	}
}

// ids answers the sources that this scanner looks after.
func (p *partitions) ids() []int {
	p.mu.Lock()
	defer p.mu.Unlock()
	out := []int{store.ExitSource}
	for _, src := range p.sources {
		if src != nil {
			out = append(out, src.ID)
		}
	}
	return out
}

// commit tells Kafka what the database has durably, never more.
func (p *partitions) commit(ctx context.Context) {
	p.mu.Lock()
	offsets := p.committed
	p.committed = map[string]map[int32]kgo.EpochOffset{}
	p.mu.Unlock()
	for topic, parts := range offsets {
		if len(parts) == 0 {
			delete(offsets, topic)
		}
	}
	if len(offsets) == 0 {
		return
	}
	if faultpoint.At(faultpoint.ScannerIndexed) != nil {
		return
	}
	ctx, cancel := context.WithTimeout(ctx, 5*time.Second)
	defer cancel()
	p.s.consumer.CommitOffsetsSync(ctx, offsets, func(_ *kgo.Client, _ *kmsg.OffsetCommitRequest, _ *kmsg.OffsetCommitResponse, err error) {
		if err != nil {
			p.s.log.Debug("committing offsets for lag monitors failed", zap.Error(err))
		}
	})
}
