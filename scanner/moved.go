package scanner

import (
	"maps"

	"github.com/twmb/franz-go/pkg/kgo"
	"go.uber.org/zap"

	"github.com/notyet/notyet/store"
)

// sourcesOf are the known sources of newly assigned partitions.
func (p *partitions) sourcesOf(offsets map[string]map[int32]kgo.Offset) (out []store.Source) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for topic, parts := range offsets {
		for part := range parts {
			if src := p.sources[partitionKey{topic, part}]; src != nil {
				out = append(out, *src)
			}
		}
	}
	return out
}

// adopt takes over where an operator has moved partitions, and answers the sources of the assigned ones as the database has them.
func (p *partitions) adopt(known []store.Source) (mine []store.Source) {
	for _, src := range known {
		key := partitionKey{src.Topic, src.Partition}
		p.mu.Lock()
		here, assigned := p.sources[key]
		assigned = assigned && p.topicIDs[src.Topic] == src.TopicID
		r := p.readings[key]
		skipped := assigned && r != nil && !r.ended.Load() && src.Next > r.polled
		p.mu.Unlock()
		if !assigned {
			continue
		}
		mine = append(mine, src)
		if here != nil && p.replaced(key, src) || !skipped {
			continue
		}
		p.log.Info("an intake partition was moved on by an operator", zap.String("topic", src.Topic), zap.Int32("partition", src.Partition), zap.Int64("offset", src.Next))
		p.set(key, src)
		p.setBack(r, src.Next)
	}
	return mine
}

// replaced has a partition read on as the source with which it was restarted, if src is another one than before.
func (p *partitions) replaced(key partitionKey, src store.Source) bool {
	p.mu.Lock()
	before := p.sources[key]
	if before == nil || before.ID == src.ID {
		p.mu.Unlock()
		return false
	}
	p.earlier[key] = append(p.earlier[key], before.ID) // its pending events are still to be told
	p.mu.Unlock()
	p.log.Info("an intake partition was restarted by an operator", zap.String("topic", src.Topic), zap.Int32("partition", src.Partition), zap.Int64("offset", src.Next))
	p.readOn(key, src)
	return true
}

// readOn has the poller read a partition from where its source stands. What was read before is not stored any more.
func (p *partitions) readOn(key partitionKey, src store.Source) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if _, assigned := p.sources[key]; !assigned {
		return
	}
	if r := p.readings[key]; r != nil {
		r.ended.Store(true)
	}
	p.sources[key] = &src
	p.again[key] = src.Next
	p.halted.clear(key)
	p.wake()
}

// readOnNew has halted partitions read on of which nothing is stored: there is nothing that their logs could have lost.
func (p *partitions) readOnNew(drained map[partitionKey]bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for key := range drained {
		src, assigned := p.sources[key]
		if r := p.readings[key]; assigned && src == nil && r != nil {
			p.again[key] = r.first
			p.halted.clear(key)
			p.wake()
		}
	}
}

// drained answers the halted partitions of which nothing waits to be stored.
func (p *partitions) drained() map[partitionKey]bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	out := p.halted.keys()
	maps.DeleteFunc(out, func(key partitionKey, _ bool) bool {
		r := p.readings[key]
		return r != nil && r.queued.Load() > 0
	})
	return out
}

// halt has nothing more read of a partition, if it is this scanner's; false: it is not, or has gone on as another source, or that is
// known.
func (p *partitions) halt(key partitionKey, why halt) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	src, assigned := p.sources[key]
	if other := why.source != 0 && (src == nil || src.ID != why.source); !assigned || other || !p.halted.set(key, why) {
		return false
	}
	p.wake() // so that the poller pauses it
	return true
}
