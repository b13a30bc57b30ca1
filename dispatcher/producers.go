package dispatcher

import (
	"context"
	"math"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/notyet/notyet/internal/kafka"
)

// producers hand records to Kafka, each the records of its topics. A client copies the list of its
// topics for each new one, and asks the brokers for all of them. So each client meets a bounded
// number of topics in its life, and then the next one is made. A full one whose topics are hardly
// used ends: a topic that was deleted would be asked for four times a second for ever.
type producers struct {
	make    func(*kafka.LostConnections) (*kgo.Client, error)
	byTopic sync.Map // topic → *met

	mu     sync.Mutex
	all    []*producer
	looked time.Time // at what is used
}

// topicsEach bounds the topics of a client. Its topics leave a full one of which fewer than an
// eighth were used within useWithin.
const topicsEach, useWithin = 1024, time.Hour

// producer is a client, with the judges of its answers.
type producer struct {
	client *kgo.Client
	lost   kafka.LostConnections
	acked  kafka.Acknowledged
	topics int  // guarded by producers.mu
	idle   bool // all topics have left it; guarded by producers.mu
}

// met is a topic that a producer has met.
type met struct {
	*producer
	sending atomic.Int64 // records without an answer; less than 0: the topic has left
	used    atomic.Bool  // since producers.looked
}

// begin counts one more record, unless the topic has left.
func (m *met) begin() bool { return m.sending.Add(1) > 0 }

// leaves has the topic leave if nothing of it is under way, so that its records stay in their
// order.
func (m *met) leaves() bool { return m.sending.CompareAndSwap(0, math.MinInt64) }

// newProducers makes the first client, and so shows that the settings are good.
func newProducers(client func(*kafka.LostConnections) (*kgo.Client, error)) (*producers, error) {
	ps := &producers{make: client, looked: time.Now()}
	_, err := ps.add()
	return ps, err
}

func (ps *producers) add() (p *producer, err error) {
	p = &producer{}
	if p.client, err = ps.make(&p.lost); err == nil {
		ps.all = append(ps.all, p)
	}
	return p, err
}

// of returns what has met a topic; nil: no producer has.
func (ps *producers) of(topic string) *met {
	m, _ := ps.byTopic.Load(topic)
	found, _ := m.(*met)
	return found
}

// begin is of for a record that is sent now.
func (ps *producers) begin(topic string) *met {
	if m := ps.of(topic); m != nil && m.begin() {
		return m
	}
	return nil
}

// withRoom returns a producer that is to meet one more topic.
func (ps *producers) withRoom() (p *producer, err error) {
	ps.mu.Lock()
	defer ps.mu.Unlock()
	for _, p = range ps.all {
		if p.topics < topicsEach {
			p.topics, p.idle = p.topics+1, false
			return p, nil
		}
	}
	if p, err = ps.add(); err == nil {
		p.topics++
	}
	return p, err
}

// drop has a producer forget a topic.
func (ps *producers) drop(p *producer, topic string) {
	ps.mu.Lock()
	p.topics--
	ps.mu.Unlock()
	go p.client.PurgeTopicsFromProducing(topic) // it waits for a metadata request that is under way
}

// forget has the producers forget topics without any written record: a client asks the brokers for
// each of its names. A topic that was written stays, because the brokers remember its producer.
func (ps *producers) forget(topics []string) {
	for _, topic := range topics {
		if m := ps.of(topic); m != nil && len(m.acked.Never([]string{topic})) > 0 && m.leaves() {
			ps.byTopic.CompareAndDelete(topic, m)
			ps.drop(m.producer, topic)
		}
	}
	ps.retire()
}

// retire has topics leave full producers that are hardly used, and ends those that all have left.
func (ps *producers) retire() {
	ps.mu.Lock()
	defer ps.mu.Unlock()
	if time.Since(ps.looked) < useWithin {
		return
	}
	ps.looked = time.Now()
	used, topics := map[*producer]int{}, map[*producer]map[string]*met{}
	for topic, v := range ps.byTopic.Range {
		m := v.(*met)
		if m.used.Swap(false) {
			used[m.producer]++
		}
		if topics[m.producer] == nil {
			topics[m.producer] = map[string]*met{}
		}
		topics[m.producer][topic.(string)] = m
	}
	newest := ps.all[len(ps.all)-1]
	ps.all = slices.DeleteFunc(ps.all, func(p *producer) bool {
		if p == newest || p.topics < topicsEach || used[p] >= topicsEach/8 {
			return false
		}
		if len(topics[p]) == 0 && p.idle {
			go p.client.Close()
			return true
		}
		p.idle = len(topics[p]) == 0 // the next time it has met no other for long
		for topic, m := range topics[p] {
			if m.leaves() {
				ps.byTopic.CompareAndDelete(topic, m)
			}
		}
		return false
	})
}

// close waits until nothing is held, or ctx ends, and ends the clients.
func (ps *producers) close(ctx context.Context) {
	ps.mu.Lock()
	defer ps.mu.Unlock()
	for _, p := range ps.all {
		_ = p.client.Flush(ctx)
		p.client.Close()
	}
}
