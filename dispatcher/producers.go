package dispatcher

import (
	"context"
	"sync"

	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/notyet/notyet/internal/kafka"
)

// producers hand records to Kafka, each the records of its topics. A client copies the list of its
// topics for each new one, and asks the brokers for all of them. So each client meets a bounded
// number of topics, and then the next one is made.
type producers struct {
	make    func(*kafka.LostConnections) (*kgo.Client, error)
	byTopic sync.Map // topic → the *producer that has met it

	mu  sync.Mutex
	all []*producer
}

// topicsEach bounds the topics of a client.
const topicsEach = 1024

// producer is a client, and what its answers are judged by.
type producer struct {
	client *kgo.Client
	lost   kafka.LostConnections
	acked  kafka.Acknowledged
	topics int // guarded by producers.mu
}

// newProducers makes the first client, which shows that the settings are good.
func newProducers(client func(*kafka.LostConnections) (*kgo.Client, error)) (*producers, error) {
	ps := &producers{make: client}
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

// of returns the producer that has met a topic; nil: none has.
func (ps *producers) of(topic string) *producer {
	p, _ := ps.byTopic.Load(topic)
	found, _ := p.(*producer)
	return found
}

// withRoom returns a producer that is to meet one more topic.
func (ps *producers) withRoom() (p *producer, err error) {
	ps.mu.Lock()
	defer ps.mu.Unlock()
	for _, p = range ps.all {
		if p.topics < topicsEach {
			p.topics++
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

// forget has the producers forget topics to which nothing was ever written: a client asks the
// brokers for each of its names. A topic that was written stays, because the brokers remember its
// producer.
func (ps *producers) forget(topics []string) {
	for _, topic := range topics {
		if p := ps.of(topic); p != nil && len(p.acked.Never([]string{topic})) > 0 {
			ps.byTopic.Delete(topic)
			ps.drop(p, topic)
		}
	}
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
