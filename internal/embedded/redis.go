package embedded

import (
	"fmt"

	"github.com/alicebob/miniredis/v2"
)

// Redis is a running in-memory server. A stop loses everything, as the index tolerates. The server
// is slow with more than about 20,000 members in one sorted set.
type Redis struct {
	server *miniredis.Miniredis
	addr   string
}

// StartRedis starts a server on a free port of 127.0.0.1.
func StartRedis() (*Redis, error) {
	m := miniredis.NewMiniRedis()
	if err := m.Start(); err != nil {
		return nil, fmt.Errorf("starting embedded redis: %w", err)
	}
	return &Redis{server: m, addr: m.Addr()}, nil
}

// Addr returns the host:port to connect to.
func (r *Redis) Addr() string { return r.addr }

// Close stops the server.
func (r *Redis) Close() { r.server.Close() }
