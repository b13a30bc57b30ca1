package chaos

import (
	"cmp"
	"fmt"
	"syscall"
	"time"

	"github.com/notyet/notyet/test/chaos/proxy"
)

// loseOne takes one server from one process for long, while all others keep it: a firewall, a password, a
// host block. Connections are refused, or stay open and bring nothing.
func loseOne(server string) func(b *breaker) error {
	return func(b *breaker) error {
		n := b.nodes[b.rng.IntN(len(b.nodes))]
		if server == zookeeperServer {
			n = b.one(dispatcherRole) // scanners do without
		}
		p, way := n.proxies[server], "connections refused"
		hurt := p.Cut
		if b.rng.IntN(2) == 0 {
			way, hurt = "nothing comes through", func() { p.Freeze(proxy.Both) }
		}
		// Only a dispatcher sends, and only an answer of Kafka, a settlement or its slots may be lost.
		b.note.Doubles = n.role == dispatcherRole && server != redisServer
		b.note.Disorder = n.role == dispatcherRole && server == kafkaServer
		had, _ := b.owned(n.name)
		p.Affected()
		b.began(n.name)
		hurt()
		span := b.randomSpan(20*time.Second, 2*time.Minute)
		b.wait(span)
		left, _ := b.owned(n.name)
		p.Heal()
		hit := p.Affected()
		b.evidence(hit > 0, "%s for %v; %d bytes and connections hit; it owned %d slots, and %d at the end", way, span.Round(time.Second), hit, had, left)
		return nil
	}
}

// haltServer stops a server's process for a while, as a host that swaps does: its connections stay open, and nothing is answered.
func haltServer(server string) func(b *breaker) error {
	return func(b *breaker) error {
		name := b.member(server)
		b.began(name)
		pid, err := b.Servers.Signal(name, syscall.SIGSTOP)
		if err != nil {
			return err
		}
		span := b.randomSpan(session/2, 3*session)
		b.wait(span)
		state, err := processState(pid)
		if _, failed := b.Servers.Signal(name, syscall.SIGCONT); err != nil || failed != nil {
			return fmt.Errorf("waking %s: %w", name, cmp.Or(err, failed))
		}
		b.evidence(state == 'T', "its process stood for %v", span.Round(time.Millisecond))
		return nil
	}
}
