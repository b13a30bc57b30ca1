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
	earlier   map[partitionKey][]int         // sources of earlier topics of the same name, as of the last assignment
	committed map[string]map[int32]kgo.EpochOffset
	readings  map[partitionKey]*reading // of the assigned partitions
	again     map[partitionKey]int64    // partitions to be read again, from these offsets, and the poller has not yet
	skip      map[partitionKey]int64    // partitions to be read on from these offsets, behind what cannot be read
	wake      context.CancelFunc        // ends the poll that is under way
	paused    map[partitionKey]bool     // in the client; only the poller uses it
}

func newPartitions(s *Scanner) *partitions {
	return &partitions{s: s, topicIDs: map[string][16]byte{}, sources: map[partitionKey]*store.Source{}, earlier: map[partitionKey][]int{}, committed: map[string]map[int32]kgo.EpochOffset{},
		readings: map[partitionKey]*reading{}, again: map[partitionKey]int64{}, skip: map[partitionKey]int64{}, wake: func() {}}
}

// begin is called with newly assigned partitions and the offsets of the group; it answers where to fetch from. The group's
// never pass the database's, so a database that stands before them was restored, and what lies between is read again.
func (p *partitions) begin(ctx context.Context, offsets map[string]map[int32]kgo.Offset) (map[string]map[int32]kgo.Offset, error) {
	var starts kafka.Offsets
	err := p.s.retry(ctx, "looking up where the intake stands", func() (err error) { starts, err = p.lookUp(ctx, offsets); return err })
	if err != nil {
		return nil, err
	}
	p.s.checkBegun(ctx, p.assigned(offsets))
	p.mu.Lock()
	defer p.mu.Unlock()
	for topic, parts := range offsets {
		for part, committed := range parts {
			key := partitionKey{topic, part}
			first, stored := starts[topic][part], int64(0)
			if src := p.sources[key]; src != nil {
				first, stored = src.Next, src.Next
				p.s.log.Info("taking an intake partition", zap.String("topic", topic), zap.Int32("partition", part), zap.Int64("offset", src.Next))
			}
			if again := committed.EpochOffset().Offset - stored; again > 0 {
				p.s.metrics.reread.Add(float64(again))
				p.s.log.Warn("the database is older than what was stored before: reading the intake again from where it stands",
					zap.String("topic", topic), zap.Int32("partition", part), zap.Int64("offset", stored), zap.Int64("offsets_again", again))
			}
			p.begun(key, first)
			parts[part] = kgo.NewOffset().At(first) // of a halted one nothing is taken
		}
	}
	return offsets, nil
}

// begun begins a new reading of a partition. The caller holds the lock.
func (p *partitions) begun(key partitionKey, first int64) {
	p.endReading(key)
	p.readings[key] = &reading{key: key, first: first, polled: first, epoch: -1}
}

// endReading has nothing of the present reading of a partition stored any more. The caller holds the lock.
func (p *partitions) endReading(key partitionKey) {
	if r := p.readings[key]; r != nil {
		r.ended.Store(true)
	}
	delete(p.readings, key)
	delete(p.again, key)
	delete(p.skip, key)
}

// lookUp reads what the database knows of newly assigned partitions, and answers where Kafka has each begin.
func (p *partitions) lookUp(ctx context.Context, offsets map[string]map[int32]kgo.Offset) (kafka.Offsets, error) {
	var topics []string
	for topic := range offsets {
		topics = append(topics, topic)
	}
	ids, err := kafka.TopicIDs(ctx, p.s.producer, topics...)
	if err != nil {
		return nil, err
	}
	for _, topic := range topics {
		if ids[topic] == [16]byte{} { // going on without it would take the partition for a new one and store all of it again
			return nil, fmt.Errorf("kafka does not know topic %q at the moment", topic)
		}
	}
	starts, err := kafka.Starts(ctx, p.s.producer, topics...)
	if err != nil {
		return nil, err
	}
	for topic, parts := range offsets {
		for part := range parts {
			if _, known := starts[topic][part]; !known {
				return nil, fmt.Errorf("kafka does not know where %s/%d begins at the moment", topic, part)
			}
		}
	}
	known, err := p.s.store.Sources(ctx)
	if err != nil {
		return nil, err
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	for topic, id := range ids {
		p.topicIDs[topic] = id
	}
	for topic, parts := range offsets {
		for part := range parts {
			p.sources[partitionKey{topic, part}] = nil
			delete(p.earlier, partitionKey{topic, part})
		}
	}
	for _, src := range known {
		key := partitionKey{src.Topic, src.Partition}
		switch _, assigned := offsets[src.Topic][src.Partition]; {
		case !assigned:
		case src.TopicID == p.topicIDs[src.Topic] && src.Retired == 0:
			p.sources[key] = &src
		default:
			p.earlier[key] = append(p.earlier[key], src.ID)
		}
	}
	return starts, nil
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

// reread learns where a partition stands after the database said that it is elsewhere than at. A database that stands further
// back was restored: the intake is then read again from there, and nothing that was read until now is stored.
func (p *partitions) reread(ctx context.Context, r *reading, at int64) error {
	p.mu.Lock()
	id := p.topicIDs[r.key.topic]
	p.mu.Unlock()
	src, err := p.s.store.Source(ctx, r.key.topic, id, r.key.partition, at)
	if err != nil {
		return err
	}
	if p.replaced(r.key, src) {
		return nil
	}
	p.set(r.key, src)
	if src.Next < at {
		p.s.metrics.reread.Add(float64(at - src.Next))
		p.s.log.Warn("the database is older than what was stored before: reading the intake again from where it stands",
			zap.String("topic", r.key.topic), zap.Int32("partition", r.key.partition), zap.Int64("offset", src.Next), zap.Int64("offsets_again", at-src.Next))
		p.setBack(r, src.Next)
	}
	return nil
}

// setBack ends a reading and has the poller read its partition again from an offset, unless another reading has begun.
func (p *partitions) setBack(r *reading, to int64) {
	p.mu.Lock()
	defer p.mu.Unlock()
	r.ended.Store(true)
	if p.readings[r.key] == r {
		p.again[r.key] = to
		p.wake()
	}
}

// fail ends the reading of a run that could not be stored. Its partition is read again from what is known to be stored.
func (p *partitions) fail(r run) {
	to := r.from
	p.mu.Lock()
	if src := p.sources[r.key()]; src != nil {
		to = min(to, src.Next)
	}
	p.mu.Unlock()
	if !r.reading.ended.Load() && !faultpoint.Without(faultpoint.NothingBehindFailure) {
		p.setBack(r.reading, to)
	}
}

// polling prepares the next poll: it begins what is to be read again, and answers a context that ends when there is more of
// that. Only the poller moves the client's offsets, so a poll never returns what was fetched before they were moved.
func (p *partitions) polling(ctx context.Context) (context.Context, context.CancelFunc) {
	p.mu.Lock()
	defer p.mu.Unlock()
	ctx, p.wake = context.WithTimeout(ctx, kafka.PollAtMost)
	offsets := kafka.Offsets{}
	for key, to := range p.again {
		p.begun(key, to)
		offsets.Set(key.topic, key.partition, to)
	}
	for key, to := range p.skip {
		delete(p.skip, key)
		offsets.Set(key.topic, key.partition, to)
	}
	p.pauseHalted()
	p.s.mover.Move(offsets, p.at)
	return ctx, p.wake
}

// at calls f with where each partition is read from next. The caller holds the lock.
func (p *partitions) at(f func(topic string, partition int32, at kgo.EpochOffset)) {
	for key, r := range p.readings {
		if !p.s.halted.has(key) {
			f(key.topic, key.partition, kgo.EpochOffset{Epoch: r.epoch, Offset: r.polled})
		}
	}
}

// received makes a run of polled records; false when their partition is no longer read from where they were.
func (p *partitions) received(records []*kgo.Record) (run, bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	r := p.readings[partitionKey{records[0].Topic, records[0].Partition}]
	if r == nil || r.ended.Load() || p.s.halted.has(r.key) {
		return run{}, false
	}
	r.queued.Add(1)
	return r.next(records), true
}

// receivedUnreadable makes a run of a batch that cannot be read, and has the next poll go on behind it.
func (p *partitions) receivedUnreadable(key partitionKey, bad *kafka.Unreadable) (run, bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	r := p.readings[key]
	if r == nil || r.ended.Load() || p.s.halted.has(key) {
		return run{}, false
	}
	r.queued.Add(1)
	out := r.nextUnreadable(bad)
	p.skip[key] = out.to
	return out, true
}

// stored notes how far the database has a partition.
func (p *partitions) stored(key partitionKey, src store.Source) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.sources[key] != nil && p.sources[key].ID == src.ID {
		p.sources[key] = &src
	}
	if p.committed[key.topic] == nil {
		p.committed[key.topic] = map[int32]kgo.EpochOffset{}
	}
	p.committed[key.topic][key.partition] = kgo.EpochOffset{Epoch: src.Epoch.Number, Offset: src.Next}
}

// drop forgets revoked partitions. A batch that is being stored may still succeed: the offsets in the database let it happen once.
func (p *partitions) drop(_ context.Context, _ *kgo.Client, gone map[string][]int32) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for topic, parts := range gone {
		for _, part := range parts {
			delete(p.sources, partitionKey{topic, part})
			p.endReading(partitionKey{topic, part})
			p.s.halted.clear(partitionKey{topic, part})
			delete(p.committed[topic], part)
		}
	}
}

// ids answers the sources that this scanner looks after: those of its partitions, and those of earlier topics of their names,
// whose pending events would belong to nobody.
func (p *partitions) ids() []int {
	p.mu.Lock()
	defer p.mu.Unlock()
	var out []int
	for key, src := range p.sources {
		out = append(out, p.earlier[key]...)
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
			p.s.log.Debug("committing offsets for lag monitors failed, trying again with the next", zap.Error(err))
			p.uncommitted(offsets)
		}
	})
}

// uncommitted takes back what Kafka did not take, except of partitions that are gone or further by now.
func (p *partitions) uncommitted(offsets map[string]map[int32]kgo.EpochOffset) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for topic, parts := range offsets {
		for part, at := range parts {
			_, assigned := p.sources[partitionKey{topic, part}]
			if _, newer := p.committed[topic][part]; newer || !assigned {
				continue
			}
			if p.committed[topic] == nil {
				p.committed[topic] = map[int32]kgo.EpochOffset{}
			}
			p.committed[topic][part] = at
		}
	}
}
