package scanner

import (
	"sync"

	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/notyet/notyet/internal/kafka"
)

// placement knows which topics have requests elsewhere than Kafka's default partitioner puts them.
// Requests about one task that came through two partitioners have lost their order.
type placement struct {
	partitions sync.Map // topic → their number, as the lag's loop last heard
	met        sync.Map // topics with such requests
}

// look reports whether a request is elsewhere.
func (p *placement) look(r *kgo.Record) bool {
	n, known := p.partitions.Load(r.Topic)
	elsewhere := known && kafka.Elsewhere(r, n.(int))
	if elsewhere {
		p.met.Store(r.Topic, true)
	}
	return elsewhere
}

// unordered reports whether the topic has requests elsewhere.
func (p *placement) unordered(topic string) bool {
	_, met := p.met.Load(topic)
	return met
}
