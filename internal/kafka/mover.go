package kafka

import (
	"time"

	"github.com/twmb/franz-go/pkg/kgo"
)

// PollAtMost bounds a poll of a client with bounded fetches, so that a Mover is asked now and then.
const PollAtMost = time.Second

// Mover moves the offsets of a client with bounded fetches. Its caller is the client's only poller.
//
// The client stops a partition at a batch too large to be read, and says so once, with the next
// poll. Before that poll it may throw its fetches away: another partition is moved, or the group
// rebalances. The error is then gone and the partition stands for good. A Mover therefore sets all
// partitions to their present offsets after such a batch.
type Mover struct {
	client *kgo.Client
	met    *bounded
	seen   int64     // batches too large, met before all partitions were last set
	since  time.Time // when it was first seen that there are more of them; zero: there are not
}

// NewMover returns one for a client of NewConsumerGroup, say.
func NewMover(client *kgo.Client) *Mover {
	met, _ := client.OptValue(kgo.WithDecompressor).(*bounded)
	return &Mover{client: client, met: met}
}

// TooLarge returns how often the client has met a batch too large to be read.
func (m *Mover) TooLarge() int64 {
	if m.met == nil {
		return 0
	}
	return m.met.tooLarge.Load()
}

// Move has the client read on from offsets. Call Move before each poll, also without offsets to
// move; at calls back with each partition's next offset.
func (m *Mover) Move(offsets Offsets, at func(f func(topic string, partition int32, at kgo.EpochOffset))) {
	set := map[string]map[int32]kgo.EpochOffset{}
	add := func(topic string, partition int32, at kgo.EpochOffset) {
		if set[topic] == nil {
			set[topic] = map[int32]kgo.EpochOffset{}
		}
		set[topic][partition] = at
	}
	if m.forgotten(len(offsets) > 0) {
		at(func(topic string, partition int32, at kgo.EpochOffset) {
			add(topic, partition, kgo.EpochOffset{Epoch: -1, Offset: at.Offset + 1})
		})
		m.client.SetOffsets(set) // it leaves a partition alone that was last set to the same offset
		at(add)
	}
	offsets.each(add)
	m.client.SetOffsets(set)
}

// forgotten says whether the client may have thrown an error away, or will.
func (m *Mover) forgotten(moving bool) bool {
	met := m.TooLarge() // before the client is set: what it meets later counts anew
	if met == m.seen {
		return false
	}
	if m.since.IsZero() {
		m.since = time.Now()
	}
	if !moving && time.Since(m.since) < PollAtMost {
		return false
	}
	m.seen, m.since = met, time.Time{}
	return true
}

// Set notes an offset.
func (o Offsets) Set(topic string, partition int32, offset int64) {
	if o[topic] == nil {
		o[topic] = map[int32]int64{}
	}
	o[topic][partition] = offset
}
