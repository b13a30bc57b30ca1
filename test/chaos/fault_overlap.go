package chaos

import (
	"errors"
	"fmt"
	"syscall"
	"time"

	"github.com/notyet/notyet/test/chaos/proxy"
)

// Two faults at once: a process is disturbed while a server is in a bad state. The seed chooses the
// pairs.

// badState is one way in which a server fails, for every process.
type badState struct {
	name  string
	begin func(b *breaker, server string) error
	end   func(b *breaker, server string) error
}

var badStates = []badState{
	{"slow", func(b *breaker, server string) error {
		delay := b.randomSpan(20*time.Millisecond, 200*time.Millisecond)
		return b.proxies(server, func(p *proxy.Proxy) { p.Delay(delay) })
	}, (*breaker).healProxies},
	// Of a cluster, one server is.
	{"frozen", func(b *breaker, server string) error {
		b.frozen = b.member(server)
		_, err := b.Servers.Signal(b.frozen, syscall.SIGSTOP)
		return err
	}, func(b *breaker, _ string) error { _, err := b.Servers.Signal(b.frozen, syscall.SIGCONT); return err }},
	{"refusing", func(b *breaker, server string) error {
		return b.proxies(server, func(p *proxy.Proxy) { p.Cut() })
	}, (*breaker).healProxies},
	// The server executes requests; the answers arrive when the state ends, mostly after their
	// callers gave up.
	{"answering late", func(b *breaker, server string) error {
		return b.proxies(server, func(p *proxy.Proxy) { p.Freeze(proxy.ToClient) })
	}, (*breaker).healProxies},
}

func (b *breaker) proxies(server string, change func(*proxy.Proxy)) error {
	for _, n := range b.nodes {
		change(n.proxies[server])
	}
	return nil
}

func (b *breaker) healProxies(server string) error { return b.proxies(server, (*proxy.Proxy).Heal) }

// disturbance is what happens to the process. It leaves the process running and returns what it
// did.
type disturbance func(b *breaker) (string, error)

// disturbDuring puts a server into a bad state, disturbs a process in the middle of it, and ends
// both, each at its own time.
func (b *breaker) disturbDuring(name string, disturb disturbance) error {
	server, state := b.names[b.rng.IntN(len(b.names))], badStates[b.rng.IntN(len(badStates))]
	span := b.randomSpan(2*time.Second, 10*time.Second)
	lead := b.randomSpan(0, span/2)
	if b.rng.IntN(3) == 0 {
		b.load.burst(b.burst/10, time.Now().Add(lead+3*time.Second).UnixMilli())
	}
	b.began(fmt.Sprintf("%s, %s %s", name, server, state.name))
	// Tasks may be sent twice when answers or outcomes are lost, and tasks of one key may be
	// delayed one by one.
	b.note.Doubles = b.note.Doubles || server != redisServer
	b.note.Disorder = server == kafkaServer
	before := b.load.acked.Load()
	if err := state.begin(b, server); err != nil {
		return err
	}
	healed := make(chan error, 1)
	go func() {
		b.wait(span)
		healed <- state.end(b, server)
	}()
	b.wait(lead)
	did, err := disturb(b)
	err = errors.Join(err, <-healed)
	b.evidence(err == nil, "for %v; %s; %d requests were acknowledged meanwhile", span.Round(time.Millisecond), did, b.load.acked.Load()-before)
	return err
}

func stopScannerWhile(b *breaker) error {
	return b.disturbDuring("stop a scanner", stopOne(scannerRole))
}
func killScannerWhile(b *breaker) error {
	return b.disturbDuring("kill a scanner", killOne(scannerRole))
}
func pauseScannerWhile(b *breaker) error {
	return b.disturbDuring("pause a scanner", pauseOne(scannerRole))
}
func stopDispatcherWhile(b *breaker) error {
	return b.disturbDuring("stop a dispatcher", stopOne(dispatcherRole))
}
func killDispatcherWhile(b *breaker) error {
	return b.disturbDuring("kill a dispatcher", killOne(dispatcherRole))
}
func pauseDispatcherWhile(b *breaker) error {
	return b.disturbDuring("pause a dispatcher", pauseOne(dispatcherRole))
}
func rebalanceWhile(b *breaker) error { return b.disturbDuring("rebalance the scanners", joinAndLeave) }

// stopOne stops a process gracefully. It must end within its time limit, whatever the server does.
func stopOne(role string) disturbance {
	return func(b *breaker) (string, error) {
		n := b.one(role)
		begin := time.Now()
		code, err := n.terminate()
		if err != nil {
			return "", err
		}
		did := fmt.Sprintf("%s stopped within %v, exit code %d", n.name, time.Since(begin).Round(time.Millisecond), code)
		b.wait(b.randomSpan(0, 2*time.Second))
		return did, n.start()
	}
}

func killOne(role string) disturbance {
	return func(b *breaker) (string, error) {
		n := b.one(role)
		n.kill()
		b.wait(b.randomSpan(0, 2*session))
		return n.name + " was killed", n.start()
	}
}

func pauseOne(role string) disturbance {
	return func(b *breaker) (string, error) {
		n := b.one(role)
		span := b.randomSpan(session/2, 3*session)
		if err := n.signal(syscall.SIGSTOP); err != nil {
			return "", err
		}
		b.wait(span)
		return fmt.Sprintf("%s was stopped for %v", n.name, span.Round(time.Millisecond)), n.signal(syscall.SIGCONT)
	}
}

func joinAndLeave(b *breaker) (string, error) {
	n, err := b.newNode(fmt.Sprintf("scanner-extra%d", b.note.N), scannerRole)
	if err != nil {
		return "", err
	}
	defer n.close()
	if err := n.start(); err != nil {
		return "", err
	}
	b.wait(b.randomSpan(2*time.Second, 6*time.Second))
	_, err = n.terminate()
	return "one more joined and left", err
}
