package chaos

import (
	"errors"
	"fmt"
	"syscall"
	"time"

	"github.com/notyet/notyet/test/chaos/proxy"
)

// Two things at once: a process is disturbed while a server is in a bad state. Each pair of the two lists comes up as the
// seed draws them.

// badState is one way in which a server serves badly, for every process.
type badState struct {
	name  string
	begin func(b *breaker, server string) error
	end   func(b *breaker, server string) error
}

var badStates = []badState{
	{"slow", func(b *breaker, server string) error {
		delay := b.between(20*time.Millisecond, 200*time.Millisecond)
		return b.proxies(server, func(p *proxy.Proxy) { p.Delay(delay) })
	}, (*breaker).healProxies},
	{"frozen", func(b *breaker, server string) error { _, err := b.Servers.Signal(server, syscall.SIGSTOP); return err },
		func(b *breaker, server string) error { _, err := b.Servers.Signal(server, syscall.SIGCONT); return err }},
	{"refusing", func(b *breaker, server string) error {
		return b.proxies(server, func(p *proxy.Proxy) { p.Cut() })
	}, (*breaker).healProxies},
	// It does what it is asked; the answers come when the state ends, mostly after their callers gave up.
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

// disturbance is what happens to the process. It leaves the process running again and says what it did.
type disturbance func(b *breaker) (string, error)

// while puts a server into a bad state, disturbs a process in the middle of it, and lets both end, each at its own time.
func (b *breaker) while(name string, disturb disturbance) error {
	server, state := serverNames[b.rng.IntN(len(serverNames))], badStates[b.rng.IntN(len(badStates))]
	span := b.between(2*time.Second, 10*time.Second)
	lead := b.between(0, span/2)
	if b.rng.IntN(3) == 0 {
		b.load.burst(b.burst/10, time.Now().Add(lead+3*time.Second).UnixMilli())
	}
	b.began(fmt.Sprintf("%s, %s %s", name, server, state.name))
	// Deliveries may be sent twice where their answers or their outcomes are lost, and tasks of one key put off one by one.
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

func stopScannerWhile(b *breaker) error  { return b.while("stop a scanner", stopOne(scannerRole)) }
func killScannerWhile(b *breaker) error  { return b.while("kill a scanner", killOne(scannerRole)) }
func pauseScannerWhile(b *breaker) error { return b.while("pause a scanner", pauseOne(scannerRole)) }
func stopDispatcherWhile(b *breaker) error {
	return b.while("stop a dispatcher", stopOne(dispatcherRole))
}
func killDispatcherWhile(b *breaker) error {
	return b.while("kill a dispatcher", killOne(dispatcherRole))
}
func pauseDispatcherWhile(b *breaker) error {
	return b.while("pause a dispatcher", pauseOne(dispatcherRole))
}
func rebalanceWhile(b *breaker) error { return b.while("rebalance the scanners", joinAndLeave) }

// stopOne stops a process gracefully: it ends within its bound, whatever the server does.
func stopOne(role string) disturbance {
	return func(b *breaker) (string, error) {
		n := b.one(role)
		begin := time.Now()
		code, err := n.terminate()
		if err != nil {
			return "", err
		}
		did := fmt.Sprintf("%s stopped within %v, exit code %d", n.name, time.Since(begin).Round(time.Millisecond), code)
		b.wait(b.between(0, 2*time.Second))
		return did, n.start()
	}
}

func killOne(role string) disturbance {
	return func(b *breaker) (string, error) {
		n := b.one(role)
		n.kill()
		b.wait(b.between(0, 2*session))
		return n.name + " was killed", n.start()
	}
}

func pauseOne(role string) disturbance {
	return func(b *breaker) (string, error) {
		n := b.one(role)
		span := b.between(session/2, 3*session)
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
	b.wait(b.between(2*time.Second, 6*time.Second))
	_, err = n.terminate()
	return "one more joined and left", err
}
