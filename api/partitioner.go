package api

import (
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/notyet/notyet/schemas"
)

// Partitioner uses the partition of Kafka's default partitioner (murmur2) for a record with a key.
// For a request without a key, the task's id takes the key's place. So this program's requests
// about one task stay in order even then.
func Partitioner() kgo.Partitioner { return partitioner{kgo.StickyKeyPartitioner(nil)} }

type partitioner struct{ usual kgo.Partitioner }

func (p partitioner) ForTopic(topic string) kgo.TopicPartitioner {
	return topicPartitioner{p.usual.ForTopic(topic)}
}

type topicPartitioner struct{ kgo.TopicPartitioner }

func (p topicPartitioner) RequiresConsistency(r *kgo.Record) bool {
	return p.TopicPartitioner.RequiresConsistency(byTask(r))
}

func (p topicPartitioner) Partition(r *kgo.Record, n int) int {
	return p.TopicPartitioner.Partition(byTask(r), n)
}

// byTask returns the record, or one with the id as its key.
func byTask(r *kgo.Record) *kgo.Record {
	if r.Key != nil {
		return r
	}
	for _, h := range r.Headers {
		if h.Key == schemas.HeaderID {
			return &kgo.Record{Topic: r.Topic, Key: h.Value}
		}
	}
	return r
}
