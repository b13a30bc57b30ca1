// Package freeport finds ports for servers that are started by tests in processes of their own.
package freeport

import (
	"fmt"
	"math/rand/v2"
	"net"
	"strconv"
)

// The system gives ports from 32768 on to connections that go out, and to listeners on port 0. A
// port from there may be taken again before the server listens on it. scripts/servers uses ports
// below 24000.
const first, last = 24_000, 32_000

// Addr returns an address of this machine that nobody listens on.
func Addr() (string, error) {
	var err error
	for range 100 {
		addr := net.JoinHostPort("127.0.0.1", strconv.Itoa(first+rand.IntN(last-first)))
		var l net.Listener
		if l, err = net.Listen("tcp", addr); err == nil {
			return addr, l.Close()
		}
	}
	return "", fmt.Errorf("no free port: %w", err)
}
