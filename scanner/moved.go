package scanner

import (
	"maps"

	"github.com/twmb/franz-go/pkg/kgo"
	"go.uber.org/zap"

	"github.com/notyet/notyet/store/intake"
)

// sourcesOf are the known sources of newly assigned partitions.
func (p *partitions) sourcesOf(offsets map[string]map[int32]kgo.Offset) (out []intake.Source) {
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

// adopt applies what an operator has done to partitions: moved one, or restarted it. It returns the
// sources of the assigned partitions as the database has them.
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

// standings returns the sources of the assigned partitions, as far as this process knows them.
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

// fallBack reads partitions again of which the database has less than this process knew before it asked: the database was
// set back to an older state. It returns the offsets that it has forgotten.
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

// replaced tells whether a partition was restarted, that is, whether src is another source than
// before. If so, the partition is read on as that source.
func (p *partitions) replaced(key partitionKey, src intake.Source) bool {
	p.mu.Lock()
	before := p.sources[key]
	if before == nil || before.ID == src.ID {
		p.mu.Unlock()
		return false
	}
	p.earlier[key] = append(p.earlier[key], before.ID) // its pending events are still to be published
	p.mu.Unlock()
	p.log.Info("an intake partition was restarted by an operator", zap.String("topic", src.Topic), zap.Int32("partition", src.Partition), zap.Int64("offset", src.Next))
	p.readOn(key, src)
	return true
}

// readOn ends the present reading of a partition. The poller reads it again from where its source stands.
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

// readOnNew lets halted partitions go on of which nothing is stored: their logs cannot have lost anything that is.
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

// drained returns the halted partitions of which nothing waits to be stored.
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
// or was halted before and nothing more is known about it.
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
