package zkfake

import (
	"net"
	"time"
)

// conn is one client connection. Its fields except out are used under the server's lock, or only by
// read.
type conn struct {
	server  *Server
	tcp     net.Conn
	out     chan []byte // a nil packet closes the connection
	closed  bool
	session *session
}

// send queues a packet and never blocks: a client that does not read is disconnected. The caller
// holds the lock.
func (c *conn) send(p []byte) {
	if c.closed {
		return
	}
	select {
	case c.out <- p:
	default:
		c.tcp.Close()
	}
}

// hangUp closes the connection after the queued packets.
func (c *conn) hangUp() { c.send(nil) }

func (c *conn) write() {
	defer c.tcp.Close()
	for p := range c.out {
		if p == nil {
			return
		}
		if _, err := c.tcp.Write(p); err != nil {
			return
		}
	}
}

func (c *conn) read() {
	defer c.gone()
	p, err := readPacket(c.tcp)
	if err != nil || !c.hello(&decoder{rest: p}) {
		return
	}
	for {
		if p, err = readPacket(c.tcp); err != nil || !c.request(&decoder{rest: p}) {
			return
		}
	}
}

func (c *conn) gone() {
	s := c.server
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.conns, c)
	s.watches.forget(c)
	if c.session != nil && c.session.conn == c {
		c.session.conn = nil
	}
	c.closed = true
	close(c.out) // write ends after the queued packets
}

// hello answers the handshake. A session id of 0 tells the client that its session has expired.
func (c *conn) hello(d *decoder) bool {
	d.int()  // protocol version
	d.long() // last zxid seen
	timeout, id, password := d.int(), d.long(), d.buffer()
	if d.err != nil {
		return false
	}
	s := c.server
	s.mu.Lock()
	defer s.mu.Unlock()
	sess := s.attach(c, id, password, time.Duration(timeout)*time.Millisecond)
	e := newPacket()
	e.int(0)
	if sess == nil {
		e.int(0)
		e.long(0)
		e.buffer(make([]byte, 16))
		c.send(e.packet())
		return false
	}
	c.session = sess
	e.int(int32(sess.timeout / time.Millisecond))
	e.long(sess.id)
	e.buffer(sess.password)
	c.send(e.packet())
	return true
}

// request answers one request. It returns false if the connection is to end.
func (c *conn) request(d *decoder) bool {
	const opClose = -11
	xid, op := d.int(), d.int()
	s := c.server
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed || s.sessions[c.session.id] != c.session || c.session.conn != c {
		return false // expired, or the session has moved to another connection
	}
	c.session.expiry.Reset(c.session.timeout)
	body := &encoder{}
	result := ok
	if op == opClose {
		c.session.conn = nil // this connection ends after the reply, below
		s.end(c.session)
	} else {
		result = s.handle(c, op, d, body)
	}
	if d.err != nil {
		return false
	}
	s.notify()
	e := newPacket()
	e.int(xid)
	e.long(s.tree.zxid)
	e.int(int32(result))
	if result == ok {
		e.p = append(e.p, body.p...)
	}
	c.send(e.packet())
	return op != opClose
}
