package chaos

import (
	"fmt"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"

	"github.com/notyet/notyet/test/chaos/proxy"
)

// dropKafka drops the broker's answers to one process, which then cannot know what was done.
func dropKafka(b *breaker) error {
	n := b.nodes[b.rng.IntN(len(b.nodes))]
	return b.hurtKafka(n, func(p *proxy.Proxy) { p.Drop(proxy.ToClient) })
}

func cutKafka(b *breaker) error {
	n := b.nodes[b.rng.IntN(len(b.nodes))]
	return b.hurtKafka(n, func(p *proxy.Proxy) { p.Cut() })
}

func (b *breaker) hurtKafka(n *node, hurt func(*proxy.Proxy)) error {
	p := n.proxies[kafkaServer]
	p.Affected()
	b.began(n.name)
	hurt(p)
	span := b.randomSpan(time.Second, 8*time.Second)
	b.wait(span)
	p.Heal()
	hit := p.Affected()
	b.evidence(hit > 0, "for %v; %d bytes and connections hit", span.Round(time.Millisecond), hit)
	return nil
}

func killBroker(b *breaker) error { return b.killBroker(b.member(kafkaServer)) }

func (b *breaker) killBroker(name string) error {
	before := b.load.acked.Load()
	b.began(name)
	if err := b.Servers.Kill(name); err != nil {
		return err
	}
	begin := time.Now()
	b.wait(b.randomSpan(0, 4*time.Second))
	refused, silent := b.Servers.refuses(name), b.load.acked.Load()
	if err := b.Servers.Up(b.ctx, name); err != nil {
		return err
	}
	b.evidence(refused, "the process was gone for %v; %d requests were acknowledged on its way down", time.Since(begin).Round(time.Millisecond), silent-before)
	return nil
}

// deleteTopic deletes a target with tasks in progress: they become dead letters, or were delivered
// before.
func deleteTopic(b *breaker) error {
	topic := fmt.Sprintf("chaos.gone.%d", b.note.N)
	if err := b.topics(b.ctx, topic); err != nil {
		return err
	}
	b.load.spread(topic, 200, 6*time.Second)
	b.wait(b.randomSpan(1500*time.Millisecond, 4*time.Second))
	b.began(topic)
	if _, err := b.admin.DeleteTopics(b.ctx, topic); err != nil {
		return err
	}
	died := func() int64 { return b.letters(topic) }
	dead := b.waitUntil(patience, func() bool { return died() > 0 })
	b.evidence(dead, "%d dead letters by then", died())
	return nil
}

// letters returns the number of dead letters of a topic.
func (b *breaker) letters(topic string) int64 {
	return b.sum(b.ctx, "SELECT COUNT(*) FROM "+database+".dead_letters WHERE topic = ?", topic)
}

// limitPadding makes each record of the limited topic larger than the lowered limit, and smaller
// than the usual one.
const (
	limitPadding = 6000
	loweredLimit = 3000
	usualLimit   = 1_048_588 // Kafka's default
)

// lowerLimit makes a topic refuse what it accepted before. Those tasks become dead letters, and no
// others.
func lowerLimit(b *breaker) error {
	before := b.letters(limitTopic)
	b.load.spread(limitTopic, 200, 6*time.Second)
	b.wait(time.Second)
	b.began(limitTopic)
	if err := b.limit(loweredLimit); err != nil {
		return err
	}
	died := b.waitUntil(patience, func() bool { return b.letters(limitTopic) > before })
	b.wait(b.randomSpan(0, 2*time.Second))
	b.evidence(died, "%d dead letters by then", b.letters(limitTopic)-before)
	return b.limit(usualLimit)
}

func (b *breaker) limit(bytes int) error {
	value := fmt.Sprint(bytes)
	responses, err := b.admin.AlterTopicConfigs(b.ctx, []kadm.AlterConfig{{Op: kadm.SetConfig, Name: "max.message.bytes", Value: &value}}, limitTopic)
	if err != nil {
		return err
	}
	for _, r := range responses {
		if r.Err != nil {
			return r.Err
		}
	}
	return nil
}
