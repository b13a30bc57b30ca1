package election

import (
	"fmt"

	"go.uber.org/zap"
)

// byName is the host provider: the servers in turn, by name, so that each name is resolved at every
// connect and not once per process. After all servers Next says so; the client then pauses and
// checks for its end.
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

type clientLog struct{ log *zap.Logger }

func (l clientLog) Printf(format string, args ...any) {
	l.log.Debug("zookeeper client", zap.String("detail", fmt.Sprintf(format, args...)))
}
