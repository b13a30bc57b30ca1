// Package proxy stands between one process and a server, or a cluster of them, and fails like a network.
package proxy

import (
	"fmt"
	"net"
	"strings"
	"sync"
	"time"
)

// Direction is the direction of bytes.
type Direction int

// The two directions, and both.
const (
	ToServer Direction = 1 << iota
	ToClient
	Both = ToServer | ToClient
)

// Proxy forwards connections to one address, or to the addresses of a cluster. Its methods disturb all of them.
type Proxy struct {
	doors   []*door
	answers func(*Proxy) rewriter // nil: bytes pass unchanged
	running sync.WaitGroup

	mu       sync.Mutex
	changed  *sync.Cond // something below has changed
	frozen   Direction  // bytes are held back, connections stay open
	dropped  Direction  // bytes are discarded
	delay    time.Duration
	cut      bool // no connections
	closed   bool
	conns    map[net.Conn]bool
	affected int64 // bytes held, discarded or delayed, and connections refused, since the last Affected
}

// rewriter changes the bytes of one connection. One goroutine for each direction calls it.
type rewriter interface {
	forward(d Direction, from, to net.Conn, gate func(n int) bool) error
}

// door is where the proxy takes connections for one address.
type door struct {
	listener net.Listener
	target   string // mu of the proxy
}

func (d *door) addr() string { return d.listener.Addr().String() }

// Start listens on a port of 127.0.0.1 for each target, and forwards to it.
func Start(targets ...string) (*Proxy, error) { return start(targets, nil) }

func start(targets []string, answers func(*Proxy) rewriter) (*Proxy, error) {
	p := &Proxy{answers: answers, conns: map[net.Conn]bool{}}
	p.changed = sync.NewCond(&p.mu)
	for _, target := range targets {
		listener, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			p.Close()
			return nil, fmt.Errorf("listening for a proxy: %w", err)
		}
		p.doors = append(p.doors, &door{listener: listener, target: target})
	}
	for _, d := range p.doors {
		p.running.Go(func() { p.accept(d) })
	}
	return p, nil
}

// Addr returns the address to connect to; with several targets, that of the first.
func (p *Proxy) Addr() string { return p.doors[0].addr() }

// Via returns the proxy's addresses for targets, both separated by commas.
func (p *Proxy) Via(targets string) string {
	p.mu.Lock()
	defer p.mu.Unlock()
	var out []string
	for target := range strings.SplitSeq(targets, ",") {
		for _, d := range p.doors {
			if d.target == target {
				out = append(out, d.addr())
			}
		}
	}
	return strings.Join(out, ",")
}

// Retarget forwards to another address from now on, and breaks all connections. The proxy must have one target.
func (p *Proxy) Retarget(target string) {
	p.set(func() { p.doors[0].target = target; p.dropAll() })
}

// Lead forwards new connections to another address from now on, and leaves the others alone. The proxy must have one target.
func (p *Proxy) Lead(target string) { p.set(func() { p.doors[0].target = target }) }

// Freeze holds bytes back in the given directions. 0 ends that and delivers what was held back.
func (p *Proxy) Freeze(d Direction) { p.set(func() { p.frozen = d }) }

// Drop discards bytes in the given directions. Heal breaks the connections, whose streams then have
// gaps.
func (p *Proxy) Drop(d Direction) { p.set(func() { p.dropped = d }) }

// Delay delays each read by d.
func (p *Proxy) Delay(d time.Duration) { p.set(func() { p.delay = d }) }

// Cut breaks all connections and refuses new ones.
func (p *Proxy) Cut() { p.set(func() { p.cut = true; p.dropAll() }) }

// Heal ends all disturbances.
func (p *Proxy) Heal() {
	p.set(func() {
		if p.dropped != 0 {
			p.dropAll()
		}
		p.frozen, p.dropped, p.delay, p.cut = 0, 0, 0, false
	})
}

// Affected returns how much was held, discarded or refused since its last call. 0 means that the
// fault affected nothing.
func (p *Proxy) Affected() int64 {
	p.mu.Lock()
	defer p.mu.Unlock()
	n := p.affected
	p.affected = 0
	return n
}

// Close breaks all connections and waits until they are gone.
func (p *Proxy) Close() {
	for _, d := range p.doors {
		_ = d.listener.Close()
	}
	p.set(func() { p.closed = true; p.dropAll() })
	p.running.Wait()
}

func (p *Proxy) set(change func()) {
	p.mu.Lock()
	defer p.mu.Unlock()
	change()
	p.changed.Broadcast()
}

func (p *Proxy) dropAll() {
	for c := range p.conns {
		_ = c.Close()
		p.affected++
	}
	clear(p.conns)
}

func (p *Proxy) accept(d *door) {
	for {
		client, err := d.listener.Accept()
		if err != nil {
			return
		}
		p.mu.Lock()
		target := d.target
		p.mu.Unlock()
		server, err := net.Dial("tcp", target)
		if err != nil {
			_ = client.Close()
			continue
		}
		p.mu.Lock()
		if p.closed || p.cut || d.target != target {
			p.affected++
			_, _ = client.Close(), server.Close()
		} else {
			p.conns[client], p.conns[server] = true, true
			p.pipe(client, server)
		}
		p.mu.Unlock()
	}
}

func (p *Proxy) pipe(client, server net.Conn) {
	var r rewriter = plain{}
	if p.answers != nil {
		r = p.answers(p)
	}
	for _, way := range []struct {
		d        Direction
		from, to net.Conn
	}{{ToServer, client, server}, {ToClient, server, client}} {
		p.running.Go(func() {
			_ = r.forward(way.d, way.from, way.to, func(n int) bool { return p.pass(way.d, way.to, n) })
			_, _ = way.from.Close(), way.to.Close()
			p.set(func() { delete(p.conns, way.from); delete(p.conns, way.to) })
		})
	}
}

// pass waits while n bytes may not pass. It returns false if they never may.
func (p *Proxy) pass(d Direction, to net.Conn, n int) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.delay > 0 {
		p.affected += int64(n)
		wait := p.delay
		p.mu.Unlock()
		time.Sleep(wait)
		p.mu.Lock()
	}
	if p.frozen&d != 0 {
		p.affected += int64(n)
	}
	for p.frozen&d != 0 && !p.closed && p.conns[to] {
		p.changed.Wait()
	}
	if p.dropped&d != 0 {
		p.affected += int64(n)
		return false
	}
	return true
}

// plain passes bytes unchanged.
type plain struct{}

func (plain) forward(_ Direction, from, to net.Conn, gate func(int) bool) error {
	buf := make([]byte, 64<<10)
	for {
		n, err := from.Read(buf)
		pass := gate(n) // the end of a stream is held back like its bytes
		if err != nil {
			return err
		}
		if !pass {
			continue
		}
		if _, err := to.Write(buf[:n]); err != nil {
			return err
		}
	}
}

// Owns reports whether the server sees a connection of this proxy as coming from the port.
func (p *Proxy) Owns(port string) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	for c := range p.conns {
		if _, own, _ := net.SplitHostPort(c.LocalAddr().String()); own == port {
			return true
		}
	}
	return false
}
