package election

import (
	"net"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"
)

// Directions of a proxy.
const (
	toServer = 1 << iota
	toMember
)

// proxy stands between one member and the ensemble and breaks as a network does.
type proxy struct {
	listener net.Listener
	target   string
	running  sync.WaitGroup

	mu     sync.Mutex
	moved  *sync.Cond // frozen or closed have changed
	frozen int        // directions in which nothing is forwarded; connections stay open
	cut    bool       // no connections at all
	closed bool
	conns  map[net.Conn]bool
}

func startProxy(t *testing.T, target string) *proxy {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	p := &proxy{listener: listener, target: target, conns: map[net.Conn]bool{}}
	p.moved = sync.NewCond(&p.mu)
	p.running.Go(p.accept)
	t.Cleanup(p.close)
	return p
}

func (p *proxy) addr() string { return p.listener.Addr().String() }

// freeze stops forwarding in the given directions; 0 heals. What was held back is delivered then.
func (p *proxy) freeze(directions int) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.frozen = directions
	p.moved.Broadcast()
}

// sever drops all connections, without a word to either side, and refuses new ones until healed.
func (p *proxy) sever(cut bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.cut = cut
	if cut {
		p.dropAll()
	}
}

func (p *proxy) dropAll() {
	for c := range p.conns {
		c.Close()
	}
	clear(p.conns)
	p.moved.Broadcast()
}

func (p *proxy) close() {
	p.listener.Close()
	p.mu.Lock()
	p.closed = true
	p.dropAll()
	p.mu.Unlock()
	p.running.Wait()
}

func (p *proxy) accept() {
	for {
		member, err := p.listener.Accept()
		if err != nil {
			return
		}
		server, err := net.Dial("tcp", p.target)
		if err != nil {
			member.Close()
			continue
		}
		p.mu.Lock()
		if p.closed || p.cut {
			member.Close()
			server.Close()
		} else {
			p.conns[member], p.conns[server] = true, true
			p.running.Go(func() { p.forward(member, server, toServer) })
			p.running.Go(func() { p.forward(server, member, toMember) })
		}
		p.mu.Unlock()
	}
}

func (p *proxy) forward(from, to net.Conn, direction int) {
	defer from.Close()
	defer to.Close()
	buf := make([]byte, 64<<10)
	for {
		n, err := from.Read(buf)
		p.mu.Lock()
		for p.frozen&direction != 0 && !p.closed && p.conns[to] {
			p.moved.Wait()
		}
		p.mu.Unlock()
		if err != nil {
			return // the end of a stream is held back like its bytes
		}
		if _, err := to.Write(buf[:n]); err != nil {
			return
		}
	}
}
