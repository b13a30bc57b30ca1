package embedded

import (
	"encoding/binary"
	"errors"
	"fmt"
	"net"
	"os"
	"sync"
	"sync/atomic"
	"time"
)

// Limits on strangers at the broker's port. kfake reads four bytes as a length and allocates as
// many: 1.2 GB for an HTTP GET.
const (
	// maxRequest is the largest request, Kafka's own default (socket.request.max.bytes).
	maxRequest = 100 << 20
	// maxConnections limits open connections. A further one is closed at once.
	maxConnections = 1000
	// idleTimeout is how long a connection may be idle between requests: Kafka's own default
	// (connections.max.idle.ms). Clients reconnect by themselves.
	idleTimeout = 10 * time.Minute
	// partTimeout is how long a connection may be silent within a request, or before the first one.
	partTimeout = 30 * time.Second
)

var errNotKafka = errors.New("not a request of Kafka")

// guard is a listener for requests of limited size.
type guard struct {
	net.Listener
	open atomic.Int64
}

// Accept closes connections above maxConnections.
func (g *guard) Accept() (net.Conn, error) {
	for {
		conn, err := g.Listener.Accept()
		if err != nil {
			return nil, err
		}
		if g.open.Add(1) > maxConnections {
			g.open.Add(-1)
			_ = conn.Close()
			continue
		}
		return &guarded{Conn: conn, done: sync.OnceFunc(func() { g.open.Add(-1) })}, nil
	}
}

// guarded reads requests: four bytes of length, then as many bytes. Only one goroutine reads.
type guarded struct {
	net.Conn
	done func()
	head [4]byte
	have int   // bytes of head read so far
	left int64 // remaining bytes of the request
	seen bool  // a whole request has arrived
}

// Read fails and closes the connection when a length is invalid.
func (c *guarded) Read(p []byte) (int, error) {
	patience := partTimeout
	if c.seen && c.left == 0 && c.have == 0 {
		patience = idleTimeout
	}
	if err := c.SetReadDeadline(time.Now().Add(patience)); err != nil {
		return 0, err
	}
	n, err := c.Conn.Read(p)
	if frame := c.follow(p[:n]); frame != nil {
		_ = c.Close()
		return 0, frame
	}
	if errors.Is(err, os.ErrDeadlineExceeded) {
		_ = c.Close()
	}
	return n, err
}

// follow tracks the position in the stream of requests.
func (c *guarded) follow(b []byte) error {
	for len(b) > 0 {
		if c.left > 0 {
			k := min(c.left, int64(len(b)))
			c.left -= k
			c.seen, b = c.seen || c.left == 0, b[k:]
			continue
		}
		k := copy(c.head[c.have:], b)
		c.have, b = c.have+k, b[k:]
		if c.have < len(c.head) {
			return nil
		}
		c.have, c.left = 0, int64(int32(binary.BigEndian.Uint32(c.head[:])))
		if c.left <= 0 || c.left > maxRequest {
			return fmt.Errorf("%w: it begins with %q", errNotKafka, c.head[:])
		}
	}
	return nil
}

// Close allows another connection.
func (c *guarded) Close() error {
	c.done()
	return c.Conn.Close()
}
