package ops

import (
	"context"
	"crypto/tls"
	"net"
	"net/http"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/notyet/notyet/internal/access"
	"github.com/notyet/notyet/internal/share"
)

// reserveConns is how many connections are open beyond those with requests at work. So some are
// always without a request, and health stays in reach under any load.
const reserveConns = 64

// reserveShare: a sixteenth of the connections at work is administrators' alone.
const reserveShare = 16

// conns bounds the connections of an address. Up to most may have admitted callers' requests at
// work, shared by tenants and tokens; further requests get 503. reserveConns more may be open.
// Beyond that number, a connection without a request gives way to a new one: of the peer with the
// most, the longest waiting one. So a peer with many silent or slow ones shuts nobody out.
type conns struct {
	most   int
	places *share.Turns // of requests at work
	open   prometheus.Gauge
	shed   prometheus.Counter

	mu  sync.Mutex
	all map[*conn]bool
}

// conn is one connection. Its fields are guarded by conns.mu.
type conn struct {
	net.Conn
	of    *conns
	peer  string
	since time.Time // when it was opened, or its last request ended
	busy  bool      // a request is at work
}

func newConns(most int, open prometheus.Gauge, shed prometheus.Counter) *conns {
	reserve := most / reserveShare
	return &conns{most: most, places: share.NewTurns(int64(most-reserve), int64(reserve), int64(most)), open: open, shed: shed, all: map[*conn]bool{}}
}

type listener struct {
	net.Listener
	conns *conns
}

// Accept implements net.Listener.
func (l listener) Accept() (net.Conn, error) {
	accepted, err := l.Listener.Accept()
	if err != nil {
		return nil, err
	}
	c := &conn{Conn: accepted, of: l.conns, since: time.Now()}
	c.peer, _, _ = net.SplitHostPort(accepted.RemoteAddr().String())
	if surplus := l.conns.add(c); surplus != nil {
		_ = surplus.Close()
	}
	return c, nil
}

// add returns the connection to give way, if one has to.
func (s *conns) add(c *conn) (surplus *conn) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.all[c] = true
	s.open.Set(float64(len(s.all)))
	if len(s.all) <= s.most+reserveConns {
		return nil
	}
	s.shed.Inc()
	of := map[string]int{}
	for o := range s.all {
		of[o.peer]++
	}
	for o := range s.all {
		if o.busy {
			continue
		}
		if surplus == nil || of[o.peer] > of[surplus.peer] || of[o.peer] == of[surplus.peer] && o.since.Before(surplus.since) {
			surplus = o
		}
	}
	return surplus
}

// Close implements net.Conn.
func (c *conn) Close() error {
	c.of.mu.Lock()
	delete(c.of.all, c)
	c.of.open.Set(float64(len(c.of.all)))
	c.of.mu.Unlock()
	return c.Conn.Close()
}

type connKey struct{}

// withConn is the http.Server's ConnContext.
func withConn(ctx context.Context, c net.Conn) context.Context {
	if secure, ok := c.(*tls.Conn); ok {
		c = secure.NetConn()
	}
	return context.WithValue(ctx, connKey{}, c)
}

// bounded serves next, behind the guard, on at most the allowed number of connections at a time.
// Requests before the guard are always served: their connections may give way meanwhile. So a peer
// without admission takes no place, however slowly it sends or reads.
func (s *conns) bounded(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		c, _ := r.Context().Value(connKey{}).(*conn)
		if c == nil { // not from this listener
			next.ServeHTTP(w, r)
			return
		}
		leave, ok := s.places.Try(access.From(r.Context()).Account(), 1)
		if !ok {
			w.Header().Set("Retry-After", "1")
			w.Header().Set("Connection", "close")
			access.Refuse(w, http.StatusServiceUnavailable, "requests are at work on as many connections as http.max-conns says, or on this tenant's share of them: try again in a second")
			return
		}
		defer leave()
		s.work(c, true)
		defer s.work(c, false)
		next.ServeHTTP(w, r)
	})
}

// work notes the begin or the end of a connection's request.
func (s *conns) work(c *conn, busy bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	c.busy, c.since = busy, time.Now()
}
