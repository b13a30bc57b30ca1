package scanner

import (
	"context"
	"fmt"

	"go.uber.org/zap"

	"github.com/notyet/notyet/internal/kafka"
)

// recreated answers the topics that are not those which are read: they were deleted and created again since. A consumer stays
// with the id of the topic that it knew, for ever, and gets nothing.
func (s *Scanner) recreated(ctx context.Context) ([]string, error) {
	ids, err := kafka.TopicIDs(ctx, s.producer, s.cfg.Read...)
	if err != nil {
		return nil, err
	}
	s.parts.mu.Lock()
	defer s.parts.mu.Unlock()
	var out []string
	for topic, id := range s.parts.topicIDs {
		if now, there := ids[topic]; there && now != id {
			out = append(out, topic)
		}
	}
	return out, nil
}

// readRecreated has the consumer forget what it knew of topics that were created again. It joins its group anew with them,
// and begins a new source of each partition.
func (s *Scanner) readRecreated(ctx context.Context) {
	topics, err := s.recreated(ctx)
	if err != nil || len(topics) == 0 {
		return // without Kafka the scanner is not ready, and says so
	}
	s.log.Warn("intake topics were deleted and created again: what was not stored of the old ones is lost, the new ones are read from their start", zap.Strings("topics", topics))
	s.parts.forget(topics)
	s.consumer.PurgeTopicsFromConsuming(topics...)
	s.consumer.AddConsumeTopics(topics...)
}

// readyRecreated answers why the scanner is not ready: a topic of another id than the one it reads.
func (s *Scanner) readyRecreated(ctx context.Context) error {
	topics, err := s.recreated(ctx)
	if err == nil && len(topics) > 0 {
		err = fmt.Errorf("topics %q were deleted and created again, and are not read yet", topics)
	}
	return err
}

// forget ends the readings of all partitions of topics, which begin anew when they are assigned again.
func (p *partitions) forget(topics []string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, topic := range topics {
		delete(p.topicIDs, topic)
		for key := range p.readings {
			if key.topic == topic {
				p.endReading(key)
				delete(p.sources, key)
				p.s.halted.clear(key)
				delete(p.committed[topic], key.partition)
			}
		}
	}
}
