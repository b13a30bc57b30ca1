package events

import (
	"context"
	"maps"

	"go.uber.org/zap"

	"github.com/notyet/notyet/internal/kafka"
	"github.com/notyet/notyet/schemas"
	"github.com/notyet/notyet/store/outbox"
)

// The results topic may take less at once than the client gathers, or refuse an event. The client
// then fails the whole batch, and everything else of the partition. Only a lone event shows whether
// the event is at fault. Otherwise the same box would fail with each look, for ever, together with
// the events of others.

// wasRefused tells whether a box has failed with an error possibly about one of its events.
func (p *Publisher) wasRefused(box outbox.Box) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.refused[keyOf(box)]
}

// forgetRefused forgets boxes outside the outbox. Without any inside, nothing waits for the topic.
func (p *Publisher) forgetRefused(outbox map[key]bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.failing = p.failing && len(outbox) > 0
	maps.DeleteFunc(p.refused, func(k key, _ bool) bool { return !outbox[k] })
}

// publishAlone publishes the events of a box one by one, and gives up each one refused by Kafka.
// After any other error publishAlone returns false, and the box stays in the outbox.
func (p *Publisher) publishAlone(ctx context.Context, box outbox.Box) bool {
	for _, e := range box.Events {
		err := p.alone.ProduceSync(ctx, schemas.EncodeEvent(p.cfg.Topic, e)).FirstErr()
		if err == nil {
			continue
		}
		p.metrics.errors.Inc()
		if !kafka.MaybeCollateral(err) {
			p.log.Warn("publishing a refused event alone failed, trying again", zap.String("topic", p.cfg.Topic), zap.Error(err))
			return false
		}
		p.log.Error("the results topic refuses an event, which is given up", zap.String("topic", p.cfg.Topic), zap.String("id", e.ID), zap.String("state", string(e.State)), zap.Error(err))
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.stored[keyOf(box)] = true
	p.published = append(p.published, outbox.Box{Source: box.Source, Seq: box.Seq})
	p.wake()
	return true
}
