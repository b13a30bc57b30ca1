package kafka

import (
	"errors"
	"slices"
	"sync"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
)

// ErrNotStored says that a partition acknowledged a record at an offset acknowledged before. The
// broker took the record's batch for an earlier one. If the log lost its end instead, the record
// may be there: only a new producer's answer tells.
var ErrNotStored = errors.New("kafka acknowledged an offset that it had acknowledged before")

// Acknowledged knows one producer's acknowledgements: for each partition, the offset behind the
// last acknowledged record. A broker remembers the sequence numbers of a producer's last five
// batches in a partition. A producer that forgets a topic begins it again with sequence 0, and the
// broker acknowledges batches without storing them. The zero Acknowledged is for a new producer.
// Memory: an entry for each partition, as in the producer.
type Acknowledged struct {
	mu   sync.Mutex
	next map[topicPartition]int64
}

type topicPartition struct {
	topic     string
	partition int32
}

func of(r *kgo.Record) topicPartition { return topicPartition{r.Topic, r.Partition} }

// Judge takes the producer's answer to a record, and returns ErrNotStored instead of an untrue
// acknowledgement. Judge needs all answers, in their order.
func (a *Acknowledged) Judge(r *kgo.Record, err error) error {
	a.mu.Lock()
	defer a.mu.Unlock()
	switch {
	case errors.Is(err, kerr.UnknownTopicID): // the topic was deleted: one of that name begins with offset 0, and knows no producer
		for partition := range a.next {
			if partition.topic == r.Topic {
				delete(a.next, partition)
			}
		}
	case err != nil:
	case r.Offset < a.next[of(r)], r.Offset < 0:
		return ErrNotStored
	default:
		a.raise(r)
	}
	return err
}

func (a *Acknowledged) raise(r *kgo.Record) {
	if a.next == nil {
		a.next = map[topicPartition]int64{}
	}
	a.next[of(r)] = r.Offset + 1
}

// Corrects takes the acknowledgement of a record by a producer made after ErrNotStored: without a
// later offset there either, the log is shorter than before.
func (a *Acknowledged) Corrects(r *kgo.Record) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if r.Offset < a.next[of(r)] {
		a.raise(r)
	}
}

// Never returns the topics without any acknowledgement: the producer may forget these.
func (a *Acknowledged) Never(topics []string) []string {
	a.mu.Lock()
	defer a.mu.Unlock()
	known := map[string]bool{}
	for partition := range a.next {
		known[partition.topic] = true
	}
	return slices.DeleteFunc(slices.Clone(topics), func(topic string) bool { return known[topic] })
}
