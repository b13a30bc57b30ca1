package sim

import (
	"bytes"
	"context"
	"net"
	"sync"
	"time"
)

// link is a connection of a process to a server. What is written is in the network at once, as it is with a real one: it
// reaches the server later if the server is frozen, also when the process is dead by then.
type link struct {
	net.Conn // the process's end
	far      net.Conn
	real     net.Conn
	p        *process
	s        *server
	once     sync.Once
	closed   chan struct{}      // severed
	written  func(b []byte)     // what the process writes, if anybody asks
	came     func(at time.Time) // when the server wrote what has come
}

// through makes a dialer whose connections pass the conditions of a server and a process.
func (w *world) through(p *process, s *server, patience time.Duration, dial dialer) dialer {
	return func(ctx context.Context, network, address string) (net.Conn, error) {
		if err := p.gate(); err != nil {
			return nil, err
		}
		ctx, cancel := context.WithTimeout(ctx, patience)
		defer cancel()
		c := s.state(p)
		if c.refuse || s.chance(c.before) {
			return nil, errRefused
		}
		if err := pause(ctx, c.delay); err != nil {
			return nil, err
		}
		if !s.await(p, true, ctx.Done(), p.dead) {
			return nil, errSilent
		}
		real, err := dial(ctx, network, address)
		if err != nil {
			return nil, err
		}
		near, far := net.Pipe()
		l := &link{Conn: near, far: far, real: real, p: p, s: s, closed: make(chan struct{})}
		if w.truth != nil && s == w.kafkaSrv {
			l.written = func(b []byte) { w.truth.written(p, b) }
		}
		if s == w.electionSrv {
			l.came = p.hears
		}
		p.hold(l, true)
		w.link(l)
		if !p.alive() {
			l.sever()
		}
		go l.up()
		go l.down()
		return l, nil
	}
}

func (l *link) Read(b []byte) (int, error) {
	n, err := l.Conn.Read(b)
	if gate := l.p.gate(); gate != nil {
		return 0, gate
	}
	return n, err
}

func (l *link) Write(b []byte) (int, error) {
	if err := l.p.gate(); err != nil {
		return 0, err
	}
	if l.written != nil {
		l.written(b)
	}
	return l.Conn.Write(b)
}

// sever breaks the connection at once, for both sides.
func (l *link) sever() {
	l.once.Do(func() {
		close(l.closed)
		_ = l.Conn.Close()
		_ = l.far.Close()
		_ = l.real.Close()
		l.p.hold(l, false)
	})
}

// up carries what the process says. What was said before the process closed its end is still delivered.
func (l *link) up() {
	l.carry(l.far, l.real, nil, func() bool {
		c := l.s.state(l.p)
		return !l.s.chance(c.before) && (c.delay == 0 || l.sleep(c.delay)) && l.s.await(l.p, false, l.closed, nil)
	})
}

// down carries what the server says.
func (l *link) down() {
	l.carry(l.real, l.far, l.came, func() bool {
		c := l.s.state(l.p)
		return !l.s.chance(c.after) && (c.late == 0 || l.sleep(c.late)) && l.s.await(l.p, true, l.closed, nil)
	})
}

// carry takes what comes as soon as it comes, as a network does (a server may hold a lock as it writes), and passes it on.
func (l *link) carry(from, to net.Conn, came func(time.Time), pass func() bool) {
	defer l.sever()
	type piece struct {
		bytes []byte
		at    time.Time
	}
	under := make(chan piece, 1024)
	go func() {
		defer close(under)
		buf := make([]byte, 16<<10)
		for {
			n, err := from.Read(buf)
			if n > 0 {
				select {
				case under <- piece{bytes.Clone(buf[:n]), time.Now()}:
				case <-l.closed:
					return
				}
			}
			if err != nil {
				return
			}
		}
	}()
	for chunk := range under {
		if !pass() {
			return
		}
		if came != nil {
			came(chunk.at)
		}
		if _, err := to.Write(chunk.bytes); err != nil {
			return
		}
	}
}

func (l *link) sleep(d time.Duration) bool {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return true
	case <-l.closed:
		return false
	}
}
