package election

import (
	"encoding/binary"
	"fmt"
	"net"
	"time"

	"go.uber.org/zap"
)

// oneServer is the host provider of a term: one server, by name, so that it is resolved at the connect and not once per
// process. From the second request on it says "all tried", which makes the client look whether it was closed.
type oneServer struct {
	server string
	asked  bool
}

func (o *oneServer) Init(servers []string) error { o.server = servers[0]; return nil }
func (o *oneServer) Len() int                    { return 1 }
func (o *oneServer) Connected()                  {}

func (o *oneServer) Next() (string, bool) {
	again := o.asked
	o.asked = true
	return o.server, again
}

// wire reads along the first bytes that a server sends, because the client keeps the granted session timeout to itself:
// length, protocol version, timeout in ms (4 bytes each).
type wire struct {
	net.Conn
	head    []byte
	granted func(sessionTimeout time.Duration)
}

const wireHead = 12

func (w *wire) Read(p []byte) (int, error) {
	n, err := w.Conn.Read(p)
	if missing := wireHead - len(w.head); missing > 0 {
		w.head = append(w.head, p[:min(n, missing)]...)
		if len(w.head) == wireHead {
			w.granted(time.Duration(int32(binary.BigEndian.Uint32(w.head[8:]))) * time.Millisecond)
		}
	}
	return n, err
}

// clientLog hands the client's log to ours.
type clientLog struct{ log *zap.Logger }

func (l clientLog) Printf(format string, args ...any) {
	l.log.Debug("zookeeper client", zap.String("detail", fmt.Sprintf(format, args...)))
}
