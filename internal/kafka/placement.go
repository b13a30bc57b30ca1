package kafka

import (
	"sync"

	"github.com/twmb/franz-go/pkg/kgo"
)

// Placement says to which partition of its topic a record with a key goes. It is the default partitioner of NewProducer, and
// learns how many partitions a topic has when the producer does.
type Placement struct {
	counts sync.Map // topic → int
	keyed  kgo.TopicPartitioner
}

// NewPlacement makes one for a single producer.
func NewPlacement() *Placement {
	return &Placement{keyed: kgo.StickyKeyPartitioner(nil).ForTopic("")}
}

// Of returns the partition of a key, or -1: the record has no key, or nothing with a key was produced to the topic yet. It may be
// called at any time.
func (p *Placement) Of(topic string, key []byte) int32 {
	n, ok := p.counts.Load(topic)
	if key == nil || !ok {
		return -1
	}
	return int32(p.keyed.Partition(&kgo.Record{Key: key}, n.(int)))
}

// ForTopic implements kgo.Partitioner.
func (p *Placement) ForTopic(topic string) kgo.TopicPartitioner {
	return &learningPartitioner{all: p, topic: topic, sticky: kgo.StickyKeyPartitioner(nil).ForTopic(topic)}
}

// learningPartitioner notes what the producer says about one topic.
type learningPartitioner struct {
	all    *Placement
	topic  string
	known  int
	sticky kgo.TopicPartitioner
}

// RequiresConsistency implements kgo.TopicPartitioner.
func (l *learningPartitioner) RequiresConsistency(r *kgo.Record) bool {
	return l.sticky.RequiresConsistency(r)
}

// Partition implements kgo.TopicPartitioner. For a record with a key, n counts the partitions that cannot be written, too.
func (l *learningPartitioner) Partition(r *kgo.Record, n int) int {
	if r.Key != nil && n != l.known {
		l.known = n
		l.all.counts.Store(l.topic, n)
	}
	return l.sticky.Partition(r, n)
}

// OnNewBatch implements kgo.TopicPartitionerOnNewBatch.
func (l *learningPartitioner) OnNewBatch() {
	if s, ok := l.sticky.(kgo.TopicPartitionerOnNewBatch); ok {
		s.OnNewBatch()
	}
}
