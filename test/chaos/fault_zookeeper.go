package chaos

import (
	"fmt"
	"os"
	"strings"
	"time"

	"github.com/notyet/notyet/test/chaos/proxy"
)

// cutZooKeeper cuts a dispatcher off the ensemble, one way or both, while it reaches the stores and
// the broker. A frozen direction leaves the connection open; a cut one does not.
func cutZooKeeper(b *breaker) error {
	n := b.one(dispatcherRole)
	p := n.proxies[zookeeperServer]
	ways := []struct {
		name string
		hurt func()
	}{
		{"to the ensemble", func() { p.Freeze(proxy.ToServer) }},
		{"from the ensemble", func() { p.Freeze(proxy.ToClient) }},
		{"both ways", func() { p.Freeze(proxy.Both) }},
		{"connections refused", p.Cut},
	}
	way := ways[b.rng.IntN(len(ways))]
	had, epoch := b.owned(n.name)
	p.Affected()
	b.began(n.name)
	way.hurt()
	b.wait(b.randomSpan(session/2, 2*session))
	_, after := b.owned(n.name)
	p.Heal()
	hurt := p.Affected()
	b.evidence(hurt > 0, "%s; %d bytes and connections hit; it owned %d slots, taken over: %v", way.name, hurt, had, after > epoch)
	return nil
}

// killZooKeeper kills the whole ensemble, which is one server.
func killZooKeeper(b *breaker) error {
	b.began(zookeeperServer)
	if err := b.Servers.Kill(zookeeperServer); err != nil {
		return err
	}
	return b.backAfter(b.randomSpan(0, 2*session))
}

// backAfter starts ZooKeeper again.
func (b *breaker) backAfter(away time.Duration) error {
	begin := time.Now()
	distrusted := b.waitUntil(away, func() bool { return !b.of(dispatcherRole)[0].ready(b.ctx) })
	b.wait(away - time.Since(begin))
	refused := b.Servers.refuses(zookeeperServer)
	if err := b.Servers.Up(b.ctx, zookeeperServer); err != nil {
		return err
	}
	b.evidence(refused, "the process was gone for %v; a dispatcher was seen unready: %v", time.Since(begin).Round(time.Millisecond), distrusted)
	return nil
}

// wipeZooKeeper deletes the ensemble's data.
func wipeZooKeeper(b *breaker) error {
	before, err := b.zxid()
	if err != nil {
		return err
	}
	b.began(zookeeperServer)
	if err := b.Servers.Kill(zookeeperServer); err != nil {
		return err
	}
	if err := os.RemoveAll(b.Servers.home(zookeeperServer) + "/data"); err != nil {
		return err
	}
	b.wait(b.randomSpan(0, session))
	if err := b.Servers.Up(b.ctx, zookeeperServer); err != nil {
		return err
	}
	after, err := b.zxid()
	if err != nil {
		return err
	}
	joined := b.waitUntil(patience, func() bool {
		dump, err := b.Servers.zookeeper("dump")
		return err == nil && len(candidate.FindAllString(dump, -1)) == len(b.of(dispatcherRole))*len(b.databases)
	})
	b.evidence(after < before && joined, "its last transaction was %#x and is %#x; all dispatchers joined again: %v", before, after, joined)
	return nil
}

// zxid returns the number of ZooKeeper's last transaction.
func (b *breaker) zxid() (n int64, err error) {
	text, err := b.Servers.zookeeper("srvr")
	if err != nil {
		return 0, err
	}
	_, rest, _ := strings.Cut(text, "Zxid: ")
	if _, err := fmt.Sscanf(rest, "0x%x", &n); err != nil {
		return 0, fmt.Errorf("reading ZooKeeper's last transaction: %w", err)
	}
	return n, nil
}
