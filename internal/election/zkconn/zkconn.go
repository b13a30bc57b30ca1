// Package zkconn stands between the ZooKeeper client library and the connection. It reads values
// hidden by the library, and prevents a data race and a hang in the library.
//
// The race: the library starts its receiving goroutine and then checks whether to set watches
// again. For this check the library reads the last zxid without a lock, while the receiving
// goroutine writes the zxid at every answer. On a busy machine the first answers, with the first
// watches, arrive before the check. The library needs a zxid only to resume a session on another
// connection, and the election never resumes one. So every answer gets a zxid of 0, which the
// library does not store.
//
// The hang: the library answers a request after a failed write, and once more when the connection
// ends. A request during the client's close has one answer already and room for two, so the client
// would never end. A failed write is therefore shown as the end of the connection alone.
package zkconn

import (
	"fmt"
	"net"
	"time"
)

// MaxPacket limits a server's packet. The library allocates as much as the first four bytes say,
// and a server on a wrong port may say gigabytes.
const MaxPacket = 16 << 20

// Offsets in a packet, including the four bytes of the length. The first packet answers the
// handshake: length, protocol version, session timeout in ms, … Every other one begins with length,
// xid (4 bytes), zxid (8 bytes), error code.
const (
	lengthEnds  = 4
	timeoutFrom = 8
	timeoutEnds = 12
	zxidFrom    = 8
	zxidEnds    = 16
	headerEnds  = zxidEnds // the rest is not examined
)

// Conn is the client's side of one connection.
type Conn struct {
	net.Conn
	granted func(sessionTimeout time.Duration)

	answered bool // the handshake's answer was read
	at       int  // how far the current packet was read
	length   uint32
	timeout  uint32
}

// New wraps tcp. granted is called once, on the reading goroutine, with the granted session
// timeout.
func New(tcp net.Conn, granted func(sessionTimeout time.Duration)) *Conn {
	return &Conn{Conn: tcp, granted: granted}
}

// Read implements net.Conn. A packet may arrive in any pieces.
func (c *Conn) Read(p []byte) (int, error) {
	n, err := c.Conn.Read(p)
	if tooLong := c.follow(p[:n]); tooLong != nil {
		return 0, tooLong // pass on nothing: the library would allocate all of it
	}
	return n, err
}

// Write implements net.Conn. A failure closes the connection, for Read to notice.
func (c *Conn) Write(p []byte) (int, error) {
	if _, err := c.Conn.Write(p); err != nil {
		_ = c.Close()
	}
	return len(p), nil
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
			return fmt.Errorf("a packet of %d bytes: this is not a ZooKeeper server, or it requires TLS", c.length)
		}
		if c.at >= lengthEnds && c.at == c.end() {
			c.at, c.length, c.answered = 0, 0, true
		}
	}
	return nil
}

func (c *Conn) end() int { return lengthEnds + int(c.length) }

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
