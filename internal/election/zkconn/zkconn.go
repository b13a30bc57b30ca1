// Package zkconn stands between the ZooKeeper client library and its connection. It reads along what the library keeps to
// itself, and keeps from the library what it would race on.
//
// The race: the library starts its receiving goroutine and then looks whether there are watches to set again. For that it
// reads the last zxid, which the receiving goroutine writes, without a lock, at every answer. On a busy machine the first
// answers, with the first watches, are there before it has looked. The library wants a zxid only to resume a session on
// another connection, which the election never does. So no answer shows it one: a zxid of 0 is not written down.
package zkconn

import (
	"fmt"
	"net"
	"time"
)

// MaxPacket bounds what a server may send: the library makes room for as much as the first four bytes say, and whatever
// listens on a wrong port may say gigabytes.
const MaxPacket = 16 << 20

// Offsets in a packet, the four bytes of its length included. The first packet answers the handshake: length, protocol
// version, session timeout in ms, … Every other one begins with length, xid (4 bytes), zxid (8 bytes), error code.
const (
	lengthEnds  = 4
	timeoutFrom = 8
	timeoutEnds = 12
	zxidFrom    = 8
	zxidEnds    = 16
	headerEnds  = zxidEnds // nothing behind it is looked at
)

// Conn is the client's side of one connection.
type Conn struct {
	net.Conn
	granted func(sessionTimeout time.Duration)

	answered bool // the handshake's answer has been read
	at       int  // how far the current packet has been read
	length   uint32
	timeout  uint32
}

// New reads along tcp. granted is called once, on the goroutine that reads, with the session timeout that the server grants.
func New(tcp net.Conn, granted func(sessionTimeout time.Duration)) *Conn {
	return &Conn{Conn: tcp, granted: granted}
}

// Read implements net.Conn. A packet may come in any pieces.
func (c *Conn) Read(p []byte) (int, error) {
	n, err := c.Conn.Read(p)
	if tooLong := c.follow(p[:n]); tooLong != nil {
		return 0, tooLong // not one byte of it: the library would make room for all of it
	}
	return n, err
}

func (c *Conn) follow(p []byte) error {
	for len(p) > 0 {
		step := 1
		if c.at < headerEnds {
			c.header(&p[0])
		} else {
			step = min(len(p), c.end()-c.at)
		}
		c.at += step
		p = p[step:]
		if c.at == lengthEnds && c.length > MaxPacket {
			return fmt.Errorf("a packet of %d bytes: that is not a ZooKeeper server, or one that wants TLS", c.length)
		}
		if c.at >= lengthEnds && c.at == c.end() {
			c.at, c.length, c.answered = 0, 0, true
		}
	}
	return nil
}

func (c *Conn) end() int { return lengthEnds + int(c.length) }

// header takes one byte of a packet's beginning.
func (c *Conn) header(b *byte) {
	switch {
	case c.at < lengthEnds:
		c.length = c.length<<8 | uint32(*b)
	case !c.answered && c.at >= timeoutFrom && c.at < timeoutEnds:
		c.timeout = c.timeout<<8 | uint32(*b)
		if c.at == timeoutEnds-1 {
			c.granted(time.Duration(int32(c.timeout)) * time.Millisecond)
		}
	case c.answered && c.at >= zxidFrom && c.at < zxidEnds:
		*b = 0
	}
}
