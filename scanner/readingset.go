package scanner

import (
	"context"

	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/notyet/notyet/internal/kafka"
)

// readingSet is how this process reads the assigned partitions, under the lock of partitions.
type readingSet struct {
	readings map[partitionKey]*reading // assignment and poller begin them
	again    map[partitionKey]int64    // partitions to be read again, from these offsets: worker and checker write them, the poller takes them
	until    kafka.Offsets             // Config.Until
	skip     map[partitionKey]int64    // partitions to be read on from these offsets, behind what cannot be read; the poller's
	wake     context.CancelFunc        // ends the poll that is under way
	halted   halted                    // changed under the lock only; others read it without
}

// begun begins a reading, in place of the present one.
func (s *readingSet) begun(key partitionKey, first int64) *reading {
	r := &reading{key: key, first: first, polled: first, epoch: -1}
	if before := s.readings[key]; before != nil {
		r.paid.Store(before.paid.Load())
		r.decided.Store(before.decided.Load())
		r.unanswered.Store(before.unanswered.Load())
	}
	if to, ends := s.until[key.topic][key.partition]; ends {
		r.until.Store(to)
	}
	s.endReading(key)
	s.readings[key] = r
	return r
}

// endReading ends a partition's reading: none of it is stored any more.
func (s *readingSet) endReading(key partitionKey) {
	if r := s.readings[key]; r != nil {
		r.ended.Store(true)
	}
	delete(s.readings, key)
	delete(s.again, key)
	delete(s.skip, key)
}

// readAnew ends a reading, and has the poller read on from an offset, unless another reading has
// begun. The lowest offset counts: stored records are passed over.
func (s *readingSet) readAnew(r *reading, to int64) {
	r.ended.Store(true)
	if s.readings[r.key] != r {
		return
	}
	if before, asked := s.again[r.key]; asked {
		to = min(to, before)
	}
	s.again[r.key] = to
	s.wake()
}

// at calls f with where each partition is read from next.
func (s *readingSet) at(f func(topic string, partition int32, at kgo.EpochOffset)) {
	for key, r := range s.readings {
		if !s.halted.has(key) {
			f(key.topic, key.partition, kgo.EpochOffset{Epoch: r.epoch, Offset: r.polled})
		}
	}
}
