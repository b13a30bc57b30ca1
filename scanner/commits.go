package scanner

import (
	"context"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"
	"go.uber.org/zap"

	"github.com/notyet/notyet/internal/faultpoint"
	"github.com/notyet/notyet/internal/kafka"
	"github.com/notyet/notyet/store/intake"
)

// lowerEvery is the time between two looks for offsets that Kafka has too high.
const lowerEvery = 2 * time.Second

// commits are the offsets that Kafka is told of, for lag monitors.
type commits struct {
	parts *partitions
	log   *zap.Logger

	mu    sync.Mutex
	whose kafka.Claim                          // that the commits name; without an installation: none. assignment writes its copy
	due   map[string]map[int32]kgo.EpochOffset // stored and not yet committed: workers add them, commit takes them
	told  map[partitionKey]int64               // of each assigned partition, the highest offset that Kafka has or is to have
	noted map[partitionKey]int                 // the restarts that its offset names

	ends map[partitionKey]int64 // of partitions of which Kafka has a higher offset, where their logs ended; lower's
}

func newCommits(parts *partitions, installation string, log *zap.Logger) *commits {
	return &commits{parts: parts, whose: kafka.Claim{Installation: installation}, log: log, due: map[string]map[int32]kgo.EpochOffset{}, told: map[partitionKey]int64{}, noted: map[partitionKey]int{}, ends: map[partitionKey]int64{}}
}

// note adds the offset of a stored partition to the next commit. After the database was set back,
// Kafka keeps its higher offset: the partition's next scanner must see what was accepted before.
// Dispatchers wait for it: see internal/copies. A partition that was revoked while its batch was
// stored has another scanner, which knows the offset to keep.
func (c *commits) note(key partitionKey, src intake.Source) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if src.Next < c.told[key] || !c.parts.assigned(key) {
		return
	}
	c.told[key] = src.Next
	c.set(key, kgo.EpochOffset{Epoch: src.Epoch.Number, Offset: src.Next})
}

// claim commits where a taken partition stands, so Kafka knows the group's owner before the first
// record is stored. If the database was set back, that is the offset committed before.
func (c *commits) claim(key partitionKey, stored, committed int64) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.told[key] = max(stored, committed)
	if c.whose.Installation != "" {
		c.set(key, kgo.EpochOffset{Epoch: -1, Offset: c.told[key]})
	}
}

// lower commits less of a partition whose log had no more when Kafka's offset was found too high:
// nothing is left to be read again. Such an offset is of an earlier log of the name, or an operator
// set the offset; dispatchers would wait for ever. A halted partition keeps the higher offset until
// an operator has decided about its log. Only one goroutine calls lower.
func (c *commits) lower(ctx context.Context, asks *kgo.Client) {
	at := c.parts.storedUpTo()
	maps.DeleteFunc(at, func(key partitionKey, next int64) bool { return c.parts.halted.has(key) || !c.above(key, next) })
	maps.DeleteFunc(c.ends, func(key partitionKey, _ int64) bool { _, still := at[key]; return !still })
	if len(at) == 0 {
		return
	}
	topics := map[string]bool{}
	for key := range at {
		topics[key.topic] = true
	}
	bound, cancel := context.WithTimeout(ctx, lagPatience)
	defer cancel()
	ends, err := kafka.Ends(bound, asks, slices.Collect(maps.Keys(topics))...)
	if err != nil && ctx.Err() == nil {
		c.log.Debug("asking where partitions end failed", zap.Error(err))
	}
	for key, next := range at {
		end, known := ends[key.topic][key.partition]
		if !known {
			continue
		}
		if before, seen := c.ends[key]; seen {
			end = min(end, before)
		}
		if c.ends[key] = end; next >= end && c.fall(key, next) {
			delete(c.ends, key)
			c.log.Warn("a partition is stored up to its end, and Kafka has a higher offset of the group: it is set back",
				zap.String("topic", key.topic), zap.Int32("partition", key.partition), zap.Int64("offset", next))
		}
	}
}

// above tells whether Kafka has a higher offset than next, or is to have.
func (c *commits) above(key partitionKey, next int64) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.told[key] > next
}

// fall commits next in place of a higher offset. False: the partition was revoked meanwhile.
func (c *commits) fall(key partitionKey, next int64) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	higher := c.told[key] > next
	if higher {
		c.told[key] = next
		c.set(key, kgo.EpochOffset{Epoch: -1, Offset: next})
	}
	return higher
}

// The caller of set holds the lock.
func (c *commits) set(key partitionKey, at kgo.EpochOffset) {
	if c.due[key.topic] == nil {
		c.due[key.topic] = map[int32]kgo.EpochOffset{}
	}
	c.due[key.topic][key.partition] = at
}

// forget drops the offsets of revoked partitions, which are not assigned: takeBack adds none.
func (c *commits) forget(gone map[string][]int32) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for topic, parts := range gone {
		for _, part := range parts {
			delete(c.due[topic], part)
			delete(c.told, partitionKey{topic, part})
			delete(c.noted, partitionKey{topic, part})
		}
	}
}

// take also commits restarts that no offset names yet: they count before anything more is stored.
// It returns the restarts. A partition that was revoked meanwhile is left out: they are unknown.
func (c *commits) take() (map[string]map[int32]kgo.EpochOffset, kafka.Claim, map[partitionKey]kafka.Restarts) {
	c.mu.Lock()
	defer c.mu.Unlock()
	restarts := make(map[partitionKey]kafka.Restarts, len(c.told))
	for key, at := range c.told {
		of, assigned := c.parts.restartsOf(key)
		if !assigned {
			delete(c.due[key.topic], key.partition)
			continue
		}
		if _, due := c.due[key.topic][key.partition]; of.N > c.noted[key] && !due {
			c.set(key, kgo.EpochOffset{Epoch: -1, Offset: at})
		}
		c.noted[key], restarts[key] = of.N, of
	}
	offsets := c.due
	c.due = map[string]map[int32]kgo.EpochOffset{}
	return offsets, c.whose, restarts
}

func (c *commits) claims() kafka.Claim {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.whose
}

// of notes the copy of the database that the commits name.
func (c *commits) of(ours kafka.Claim) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.whose = ours
}

// commit tells Kafka what the database has stored durably, and never more.
func (c *commits) commit(ctx context.Context, group *kgo.Client) {
	offsets, whose, restarts := c.take()
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
	if whose.Installation != "" {
		ctx = kafka.ClaimGroup(ctx, whose, func(topic string, partition int32) kafka.Restarts {
			return restarts[partitionKey{topic, partition}]
		})
	}
	group.CommitOffsetsSync(ctx, offsets, func(_ *kgo.Client, _ *kmsg.OffsetCommitRequest, said *kmsg.OffsetCommitResponse, err error) {
		if err == nil {
			err = refused(offsets, said)
		}
		if err != nil {
			c.log.Debug("committing offsets for lag monitors failed, trying again with the next", zap.Error(err))
			c.takeBack(offsets)
		}
	})
}

// refused leaves only what Kafka did not take, as while the group shares its partitions anew.
func refused(offsets map[string]map[int32]kgo.EpochOffset, said *kmsg.OffsetCommitResponse) (last error) {
	for _, t := range said.Topics {
		for _, p := range t.Partitions {
			if err := kerr.ErrorForCode(p.ErrorCode); err != nil {
				last = err
			} else {
				delete(offsets[t.Topic], p.Partition)
			}
		}
	}
	return last
}

// takeBack notes offsets of a failed commit again, but for partitions with newer ones, or gone.
func (c *commits) takeBack(offsets map[string]map[int32]kgo.EpochOffset) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for topic, parts := range offsets {
		for part, at := range parts {
			key := partitionKey{topic, part}
			if _, newer := c.due[topic][part]; !newer && c.parts.assigned(key) {
				c.set(key, at)
			}
		}
	}
}
