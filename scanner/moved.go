package scanner

import (
	"maps"

	"github.com/twmb/franz-go/pkg/kgo"
	"go.uber.org/zap"

	"github.com/notyet/notyet/store/intake"
)

// sourcesOf returns the sources of newly assigned partitions, and the partitions without one.
func (p *partitions) sourcesOf(offsets map[string]map[int32]kgo.Offset) (known []intake.Source, unknown []partitionKey) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for topic, parts := range offsets {
		for part := range parts {
			if src := p.sources[partitionKey{topic, part}]; src != nil {
				known = append(known, *src)
			} else {
				unknown = append(unknown, partitionKey{topic, part})
			}
		}
	}
	return known, unknown
}

// adopt applies an operator's moves and restarts, and returns the assigned partitions' sources.
func (p *partitions) adopt(known []intake.Source) (mine []intake.Source) {
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

// standings returns this process's view of the assigned partitions' sources.
func (p *partitions) standings() map[partitionKey]intake.Source {
	p.mu.Lock()
	defer p.mu.Unlock()
	out := make(map[partitionKey]intake.Source, len(p.sources))
	for key, src := range p.sources {
		if src != nil {
			out[key] = *src
		}
	}
	return out
}

// span is the offsets [from, to).
type span struct{ from, to int64 }

// fallBack has partitions read again if the database has less than this process knew before the
// look: the database was set back to an older state. It returns the forgotten offsets.
func (p *partitions) fallBack(before map[partitionKey]intake.Source, inUse []intake.Source) map[partitionKey]span {
	now := map[partitionKey]intake.Source{}
	for _, src := range inUse {
		key := partitionKey{src.Topic, src.Partition}
		if before[key].TopicID == src.TopicID {
			now[key] = src
		}
	}
	out := map[partitionKey]span{}
	p.mu.Lock()
	defer p.mu.Unlock()
	for key, was := range before {
		r, here, is := p.readings[key], p.sources[key], now[key]
		_, anew := p.again[key]
		known := is.ID != 0
		switch {
		case r == nil || anew || here == nil || here.ID != was.ID: // the next look sees what becomes of it
		case known && (is.ID != was.ID || is.Next >= was.Next):
		case known:
			p.sources[key] = &is
			p.readAnew(r, is.Next)
			out[key] = span{is.Next, was.Next}
		default:
			p.forgotten(r)
			out[key] = span{0, was.Next}
		}
	}
	return out
}

// replaced tells whether src, after a restart, is a new source. If so, src is read on. The source
// of before a restart comes back in a database that was set back: its partition halts.
func (p *partitions) replaced(key partitionKey, src intake.Source) bool {
	p.mu.Lock()
	before := p.sources[key]
	if before == nil || before.ID == src.ID {
		p.mu.Unlock()
		return false
	}
	if src.Generation < p.restarts[key] {
		p.sources[key] = &src
		p.endReading(key)
		p.halted.set(key, forgot(src, p.restarts[key]))
		p.wake()
		p.mu.Unlock()
		return true
	}
	p.restarts[key] = src.Generation
	p.earlier[key] = append(p.earlier[key], before.ID) // its pending events are still to be published
	p.mu.Unlock()
	p.log.Info("an intake partition was restarted by an operator", zap.String("topic", src.Topic), zap.Int32("partition", src.Partition), zap.Int64("offset", src.Next))
	p.readOn(key, src)
	return true
}

// readOn ends the present reading of a partition. The poller reads on from where the source stands.
func (p *partitions) readOn(key partitionKey, src intake.Source) {
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

// readOnNew lets halted partitions without stored records go on: their logs cannot have lost any.
func (p *partitions) readOnNew(drained map[partitionKey]bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for key := range drained {
		src, assigned := p.sources[key]
		if r := p.readings[key]; assigned && src == nil && r != nil {
			p.readAnew(r, r.first)
			p.halted.clear(key)
		}
	}
}

// drained returns the halted partitions with nothing left to store.
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

// halt stops reading a partition. False: the partition is not assigned, is another source by now,
// or was halted before and nothing more is known.
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
