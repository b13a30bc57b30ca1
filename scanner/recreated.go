package scanner

import (
	"context"
	"fmt"

	"github.com/twmb/franz-go/pkg/kgo"
	"go.uber.org/zap"

	"github.com/notyet/notyet/internal/kafka"
)

// recreated finds topics that were deleted and created again. A consumer asks for old ids for ever.
type recreated struct {
	asks    *kgo.Client
	group   *kgo.Client
	topics  []string
	parts   *partitions
	commits *commits
	log     *zap.Logger
}

func (r *recreated) find(ctx context.Context) ([]string, error) {
	ids, err := kafka.TopicIDs(ctx, r.asks, r.topics...)
	if err != nil {
		return nil, err
	}
	return r.parts.otherTopics(ids), nil
}

// readAnew makes the consumer forget topics that were created again. The consumer joins its group
// again with the new topics, and each of their partitions becomes a new source.
func (r *recreated) readAnew(ctx context.Context) {
	topics, err := r.find(ctx)
	if err != nil || len(topics) == 0 {
		return // Ready reports that Kafka does not answer
	}
	r.log.Warn("intake topics were deleted and created again: what was not stored of the old ones is lost, the new ones are read from their start", zap.Strings("topics", topics))
	r.commits.forget(r.parts.forget(topics))
	r.group.PurgeTopicsFromConsuming(topics...)
	r.group.AddConsumeTopics(topics...)
}

// ready returns an error if a topic has another id than the one being read.
func (r *recreated) ready(ctx context.Context) error {
	topics, err := r.find(ctx)
	if err == nil && len(topics) > 0 {
		err = fmt.Errorf("topics %q were deleted and created again, and are not read yet", topics)
	}
	return err
}

// otherTopics returns the assigned topics with another id in ids.
func (p *partitions) otherTopics(ids map[string][16]byte) (out []string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for topic, id := range p.topicIDs {
		if now, there := ids[topic]; there && now != id {
			out = append(out, topic)
		}
	}
	return out
}

// forget drops all partitions of the topics, and returns them. Assigned again, they begin as new.
func (p *partitions) forget(topics []string) map[string][]int32 {
	gone := map[string][]int32{}
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, topic := range topics {
		delete(p.topicIDs, topic)
		for key := range p.sources {
			if key.topic == topic {
				p.dropOne(key)
				gone[topic] = append(gone[topic], key.partition)
			}
		}
	}
	return gone
}
