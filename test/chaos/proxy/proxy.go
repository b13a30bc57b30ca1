// Package proxy stands between one process and one server, and breaks as a network does.
package proxy

import (
	"fmt"
	"net"
	"sync"
	"time"
)

// Direction says which way bytes go.
type Direction int

// The two ways, and both.
const (
	ToServer Direction = 1 << iota
	ToClient
	Both = ToServer | ToClient
)

// Proxy forwards connections to one address until it is told otherwise.
type Proxy struct {
	listener net.Listener
	target   string
	answers  func(addr string) rewriter // nil: bytes pass as they are
	running  sync.WaitGroup

	mu      sync.Mutex
	changed *sync.Cond // anything below has changed
	frozen  Direction  // bytes are held back, connections stay open
	dropped Direction  // bytes are swallowed
	delay   time.Duration
	cut     bool // no connections
	closed  bool
	conns   map[net.Conn]bool
	hurt    int64 // bytes held, swallowed or delayed, and connections refused, since the last Hurt
}

// rewriter changes what passes through one connection; it is called by one goroutine for each direction.
type rewriter interface {
	forward(d Direction, from, to net.Conn, gate func(n int) bool) error
}

// Start listens on a port of 127.0.0.1 and forwards to target.
func Start(target string) (*Proxy, error) { return start(target, nil) }

func start(target string, answers func(addr string) rewriter) (*Proxy, error) {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, fmt.Errorf("listening for a proxy: %w", err)
	}
	p := &Proxy{listener: listener, target: target, answers: answers, conns: map[net.Conn]bool{}}
	p.changed = sync.NewCond(&p.mu)
	p.running.Go(p.accept)
	return p, nil
}

// Addr is where to connect to.
func (p *Proxy) Addr() string { return p.listener.Addr().String() }

// Freeze holds bytes back in the given directions, 0 lets go: what was held back is delivered then.
func (p *Proxy) Freeze(d Direction) { p.set(func() { p.frozen = d }) }

// Drop swallows bytes in the given directions. Heal breaks the connections, whose streams have holes by then.
func (p *Proxy) Drop(d Direction) { p.set(func() { p.dropped = d }) }

// Delay holds up each read by d.
func (p *Proxy) Delay(d time.Duration) { p.set(func() { p.delay = d }) }

// Cut breaks all connections and refuses new ones.
func (p *Proxy) Cut() { p.set(func() { p.cut = true; p.dropAll() }) }

// Heal undoes all of it.
func (p *Proxy) Heal() {
	p.set(func() {
		if p.dropped != 0 {
			p.dropAll()
		}
		p.frozen, p.dropped, p.delay, p.cut = 0, 0, 0, false
	})
}

// Hurt tells how much was held up, swallowed or refused since it was last asked: 0 means that the fault hit nothing.
func (p *Proxy) Hurt() int64 {
	p.mu.Lock()
	defer p.mu.Unlock()
	n := p.hurt
	p.hurt = 0
	return n
}

// Close breaks all connections and waits until they are gone.
func (p *Proxy) Close() {
	_ = p.listener.Close()
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
		p.hurt++
	}
	clear(p.conns)
}

func (p *Proxy) accept() {
	for {
		client, err := p.listener.Accept()
		if err != nil {
			return
		}
		server, err := net.Dial("tcp", p.target)
		if err != nil {
			_ = client.Close()
			continue
		}
		p.mu.Lock()
		if p.closed || p.cut {
			p.hurt++
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
		r = p.answers(p.Addr())
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

// pass waits as long as n bytes may not go on; false: they never do.
func (p *Proxy) pass(d Direction, to net.Conn, n int) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.delay > 0 {
		p.hurt += int64(n)
		wait := p.delay
		p.mu.Unlock()
		time.Sleep(wait)
		p.mu.Lock()
	}
	if p.frozen&d != 0 {
		p.hurt += int64(n)
	}
	for p.frozen&d != 0 && !p.closed && p.conns[to] {
		p.changed.Wait()
	}
	if p.dropped&d != 0 {
		p.hurt += int64(n)
		return false
	}
	return true
}

// plain passes bytes as they come.
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

// Owns tells whether the server sees a connection of this proxy as coming from the port.
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
