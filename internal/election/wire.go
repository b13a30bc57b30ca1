package election

import (
	"fmt"

	"go.uber.org/zap"
)

// byName is the host provider: servers in turn, by name, so that each is resolved at the connect and not once per process.
// When all were tried it says so, which makes the client pause and look whether it was closed.
type byName struct {
	servers []string
	next    int
}

func (b *byName) Init(servers []string) error { b.servers = servers; return nil }
func (b *byName) Len() int                    { return len(b.servers) }
func (b *byName) Connected()                  {}

func (b *byName) Next() (string, bool) {
	server, again := b.servers[b.next%len(b.servers)], b.next > 0 && b.next%len(b.servers) == 0
	b.next++
	return server, again
}

// clientLog hands the client's log to ours.
type clientLog struct{ log *zap.Logger }

func (l clientLog) Printf(format string, args ...any) {
	l.log.Debug("zookeeper client", zap.String("detail", fmt.Sprintf(format, args...)))
}
