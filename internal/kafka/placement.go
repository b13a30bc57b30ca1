package kafka

import (
	"sync"

	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/notyet/notyet/schemas"
)

// Placement says to which partition of its topic a record with a key goes. It is the default
// partitioner of NewProducer, and learns a topic's number of partitions together with the producer.
type Placement struct {
	counts sync.Map // topic → int
}

// NewPlacement makes one for a single producer.
func NewPlacement() *Placement { return &Placement{} }

var byKey = kgo.StickyKeyPartitioner(nil).ForTopic("") // for records with a key

// PartitionOf returns the one of n partitions that Kafka's default partitioner (murmur2) has for a
// key.
func PartitionOf(key []byte, n int) int32 { return int32(byKey.Partition(&kgo.Record{Key: key}, n)) }

// Elsewhere reports whether a request about a task with an id is in another one of n partitions
// than Kafka's default partitioner has for its key. A schedule request without a key may be
// anywhere. The others go by the id then, as those of the API do.
func Elsewhere(r *kgo.Record, n int) bool {
	id, schedules := []byte(nil), true
	for _, h := range r.Headers {
		switch h.Key {
		case schemas.HeaderID:
			id = h.Value
		case schemas.HeaderOp:
			schedules = string(h.Value) == schemas.OpSchedule.String()
		}
	}
	if r.Key == nil && !schedules {
		r = &kgo.Record{Key: id, Partition: r.Partition}
	}
	return id != nil && r.Key != nil && byKey.Partition(r, n) != int(r.Partition)
}

// Of returns the partition of a key, or -1: the record has no key, or nothing with a key was
// produced to the topic yet. Of may be called at any time.
func (p *Placement) Of(topic string, key []byte) int32 {
	n, ok := p.counts.Load(topic)
	if key == nil || !ok {
		return -1
	}
	return PartitionOf(key, n.(int))
}

// Knows says whether a producer has met a topic.
func (p *Placement) Knows(topic string) bool {
	_, ok := p.counts.Load(topic)
	return ok
}

// ForTopic implements kgo.Partitioner.
func (p *Placement) ForTopic(topic string) kgo.TopicPartitioner {
	return &learningPartitioner{all: p, topic: topic, sticky: kgo.StickyKeyPartitioner(nil).ForTopic(topic)}
}

type learningPartitioner struct {
	all    *Placement
	topic  string
	known  int
	sticky kgo.TopicPartitioner
}

// nowhere is the key of never sent records.
var nowhere = []byte("nowhere")

// Meeting is a record that is never sent. A producer with a Placement learns the topic's
// partitions, and fails the record. Then Met says whether the producer knows the topic.
func Meeting(topic string) *kgo.Record { return &kgo.Record{Topic: topic, Key: nowhere} }

// Met says whether the producer of a failed Meeting knows the topic.
func Met(r *kgo.Record) bool { return r.Value != nil }

func isMeeting(r *kgo.Record) bool { return len(r.Key) > 0 && &r.Key[0] == &nowhere[0] }

// RequiresConsistency implements kgo.TopicPartitioner.
func (l *learningPartitioner) RequiresConsistency(r *kgo.Record) bool {
	return l.sticky.RequiresConsistency(r)
}

// Partition implements kgo.TopicPartitioner. For a record with a key, n counts unwritable
// partitions too. The client fails a record that has -1.
func (l *learningPartitioner) Partition(r *kgo.Record, n int) int {
	if r.Key != nil && n != l.known {
		l.known = n
		l.all.counts.Store(l.topic, n)
	}
	if isMeeting(r) {
		r.Value = []byte{}
		return -1
	}
	return l.sticky.Partition(r, n)
}

// OnNewBatch implements kgo.TopicPartitionerOnNewBatch.
func (l *learningPartitioner) OnNewBatch() {
	if s, ok := l.sticky.(kgo.TopicPartitionerOnNewBatch); ok {
		s.OnNewBatch()
	}
}
