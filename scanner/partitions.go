package scanner

import (
	"sync"

	"github.com/twmb/franz-go/pkg/kgo"
	"go.uber.org/zap"

	"github.com/notyet/notyet/internal/kafka"
	"github.com/notyet/notyet/store/intake"
)

// partitions is the state of the assigned intake partitions: the source of each, how far the
// database has it, how this process reads it, and whether it is halted. All is under one lock:
// revoking, restarting or setting back a partition changes several parts at once.
type partitions struct {
	log *zap.Logger

	mu       sync.Mutex
	topicIDs map[string][16]byte             // of the topics that the client reads; assignment writes them, recreated forgets them
	sources  map[partitionKey]*intake.Source // of the assigned partitions; nil: not asked for yet. assignment, worker and checker write them
	earlier  map[partitionKey][]int          // sources of earlier topics of the same name, as of the last assignment; the results' leftovers are theirs too
	restarts map[partitionKey]int            // how often each assigned one was restarted, by the group's offsets and by the database
	revoked  map[partitionKey]int            // how often each was revoked
	readingSet
}

func newPartitions(log *zap.Logger) *partitions {
	return &partitions{
		log: log, topicIDs: map[string][16]byte{}, sources: map[partitionKey]*intake.Source{}, earlier: map[partitionKey][]int{}, restarts: map[partitionKey]int{}, revoked: map[partitionKey]int{},
		readingSet: readingSet{readings: map[partitionKey]*reading{}, again: map[partitionKey]int64{}, skip: map[partitionKey]int64{}, wake: func() {}},
	}
}

// assign takes newly assigned partitions in, with what the group noted and what the database knows.
func (p *partitions) assign(offsets map[string]map[int32]kgo.Offset, noted map[string]map[int32]kafka.Committed, ids map[string][16]byte, known []intake.Source) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for topic, id := range ids {
		if _, read := p.topicIDs[topic]; !read { // the client goes on reading the topic that it knows: see recreated
			p.topicIDs[topic] = id
		}
	}
	for topic, parts := range offsets {
		for part := range parts {
			key := partitionKey{topic, part}
			p.sources[key] = nil
			delete(p.earlier, key)
			if r := noted[topic][part].Restarts(); r.TopicID == p.topicIDs[topic] {
				p.restarts[key] = max(p.restarts[key], r.N)
			}
		}
	}
	for _, src := range known {
		key := partitionKey{src.Topic, src.Partition}
		switch _, assigned := offsets[src.Topic][src.Partition]; {
		case !assigned:
		case src.TopicID == p.topicIDs[src.Topic] && src.Retired == 0:
			p.sources[key] = &src
			p.restarts[key] = max(p.restarts[key], src.Generation)
		default:
			p.earlier[key] = append(p.earlier[key], src.ID)
		}
	}
}

type start struct {
	at     int64
	stored bool // the database has it up to there; false: it has nothing of it
}

// begin begins a reading of each newly assigned partition, where the database stands. Of a
// partition unknown to the database, the reading begins at Kafka's start.
func (p *partitions) begin(begins kafka.Offsets, offsets map[string]map[int32]kgo.Offset) map[partitionKey]start {
	p.mu.Lock()
	defer p.mu.Unlock()
	out := map[partitionKey]start{}
	for topic, parts := range offsets {
		for part := range parts {
			key := partitionKey{topic, part}
			from := start{at: begins[topic][part]}
			if src := p.sources[key]; src != nil {
				from = start{at: src.Next, stored: true}
			}
			r, committed := p.begun(key, from.at), parts[part].EpochOffset().Offset
			r.paid.Store(committed)
			r.decided.Store(committed)
			out[key] = from
		}
	}
	return out
}

// queued returns how many stretches of the assigned partitions are neither stored nor given up.
func (p *partitions) queued() (n int) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, r := range p.readings {
		n += int(r.queued.Load())
	}
	return n
}

// source returns the source of a partition; nil: the database knew none. It also returns the topic,
// and how often the partition was restarted.
func (p *partitions) source(key partitionKey) (*intake.Source, kafka.Restarts) {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.sources[key], kafka.Restarts{TopicID: p.topicIDs[key.topic], N: p.restarts[key]}
}

// restartsOf returns how often an assigned partition was restarted. False: it is not assigned.
func (p *partitions) restartsOf(key partitionKey) (kafka.Restarts, bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	_, assigned := p.sources[key]
	return kafka.Restarts{TopicID: p.topicIDs[key.topic], N: p.restarts[key]}, assigned
}

func (p *partitions) reading(key partitionKey) *reading {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.readings[key]
}

// set notes a source, unless its partition was revoked meanwhile.
func (p *partitions) set(key partitionKey, src intake.Source) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if _, assigned := p.sources[key]; assigned {
		p.sources[key] = &src
	}
}

// setBack ends a reading. The poller reads on from an offset, unless another reading has begun.
func (p *partitions) setBack(r *reading, to int64) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.readAnew(r, to)
}

// startOver ends a reading unknown to the database. Kafka's records are read again from the start.
func (p *partitions) startOver(r *reading) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.forgotten(r)
}

// forgotten is startOver for a caller with the lock.
func (p *partitions) forgotten(r *reading) {
	p.readAnew(r, 0) // it ends before its source goes, so that no new one is made for what was read in it
	if p.readings[r.key] == r {
		p.sources[r.key] = nil
	}
}

// fail ends the reading of an unstored stretch. The partition is read again from the stored offset.
func (p *partitions) fail(r stretch) {
	to := r.from
	p.mu.Lock()
	if src := p.sources[r.key()]; src != nil {
		to = min(to, src.Next)
	}
	p.mu.Unlock()
	if !r.reading.ended.Load() {
		p.setBack(r.reading, to)
	}
}

// stored notes how far the database has a partition.
func (p *partitions) stored(key partitionKey, src intake.Source) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.sources[key] != nil && p.sources[key].ID == src.ID {
		p.sources[key] = &src
	}
}

// drop forgets revoked partitions. A batch under way may still succeed: the stored offsets make
// sure that none is stored twice.
func (p *partitions) drop(gone map[string][]int32) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for topic, parts := range gone {
		for _, part := range parts {
			p.dropOne(partitionKey{topic, part})
		}
	}
}

// The caller of dropOne holds the lock.
func (p *partitions) dropOne(key partitionKey) {
	delete(p.sources, key)
	delete(p.restarts, key)
	p.revoked[key]++
	p.endReading(key)
	p.halted.clear(key)
}

func (p *partitions) assigned(key partitionKey) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	_, ok := p.sources[key]
	return ok
}

// ids returns the sources whose pending events this scanner publishes: those of its partitions, and
// those of earlier topics of the same names, which no other scanner publishes.
func (p *partitions) ids() []int {
	p.mu.Lock()
	defer p.mu.Unlock()
	var out []int
	for key, src := range p.sources {
		out = append(out, p.earlier[key]...)
		if src != nil {
			out = append(out, src.ID)
		}
	}
	return out
}
