// Package zkfake is one ZooKeeper server in this process, for tests. It speaks the client protocol over
// TCP, so that the real client with its sessions, watches and reconnects runs against it.
//
// It supports sessions (re-attach, expiry, a granted timeout), persistent, ephemeral and sequential
// znodes, versions, one-shot watches and setting them again, and multi. It does not support access
// rights, quotas, containers, TTLs, persistent watches or an ensemble. It keeps everything in
// memory.
package zkfake

import (
	"crypto/rand"
	"fmt"
	"maps"
	"net"
	"slices"
	"sync"
	"time"
)

// Config limits what the server grants. The zero Config works.
type Config struct {
	// Addr is where to listen. Default 127.0.0.1:0, a free port.
	Addr string
	// Listen makes the listener. Default net.Listen.
	Listen func(network, address string) (net.Listener, error)
	// MinSessionTimeout and MaxSessionTimeout limit the session timeout that a client requests.
	// Default 10ms and 1h.
	MinSessionTimeout, MaxSessionTimeout time.Duration
}

// Server serves from Start to Close.
type Server struct {
	cfg      Config
	listener net.Listener
	running  sync.WaitGroup

	mu       sync.Mutex
	closed   bool
	tree     *tree
	watches  watches
	sessions map[int64]*session
	conns    map[*conn]bool
	lastID   int64
}

type session struct {
	id       int64
	password []byte
	timeout  time.Duration
	expiry   *time.Timer
	conn     *conn // nil while disconnected
}

// Start listens and serves in the background.
func Start(cfg Config) (*Server, error) {
	if cfg.Addr == "" {
		cfg.Addr = "127.0.0.1:0"
	}
	if cfg.MinSessionTimeout == 0 {
		cfg.MinSessionTimeout = 10 * time.Millisecond
	}
	if cfg.MaxSessionTimeout == 0 {
		cfg.MaxSessionTimeout = time.Hour
	}
	if cfg.Listen == nil {
		cfg.Listen = net.Listen
	}
	listener, err := cfg.Listen("tcp", cfg.Addr)
	if err != nil {
		return nil, fmt.Errorf("listening on %s: %w", cfg.Addr, err)
	}
	s := &Server{
		cfg: cfg, listener: listener, tree: newTree(), watches: newWatches(),
		sessions: map[int64]*session{}, conns: map[*conn]bool{}, lastID: time.Now().UnixNano(),
	}
	s.running.Go(s.accept)
	return s, nil
}

// Addr returns host:port for clients.
func (s *Server) Addr() string { return s.listener.Addr().String() }

// Close drops all connections and waits until nothing runs any more.
func (s *Server) Close() {
	s.listener.Close()
	s.mu.Lock()
	s.closed = true
	for c := range s.conns {
		c.tcp.Close()
	}
	for _, sess := range s.sessions {
		sess.expiry.Stop()
	}
	s.mu.Unlock()
	s.running.Wait()
}

// Expire ends a session as if its timeout had passed: its ephemerals disappear and its connection
// is closed. It returns false if there is no such session.
func (s *Server) Expire(id int64) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	sess := s.sessions[id]
	if sess != nil {
		s.end(sess)
	}
	return sess != nil
}

// Sessions returns the ids of those that live, in the order of their start.
func (s *Server) Sessions() []int64 {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Sorted(maps.Keys(s.sessions))
}

// Disconnect closes a session's connection and keeps the session until its timeout. It returns
// false if the session is not connected.
func (s *Server) Disconnect(id int64) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	sess := s.sessions[id]
	if sess == nil || sess.conn == nil {
		return false
	}
	sess.conn.tcp.Close()
	return true
}

func (s *Server) accept() {
	for {
		tcp, err := s.listener.Accept()
		if err != nil {
			return // closed
		}
		s.mu.Lock()
		if s.closed {
			tcp.Close()
		} else {
			c := &conn{server: s, tcp: tcp, out: make(chan []byte, 1024)}
			s.conns[c] = true
			s.running.Go(c.read)
			s.running.Go(c.write)
		}
		s.mu.Unlock()
	}
}

// attach gives a connection its session: the one it names, if that is alive, or a new one. It
// returns nil if that session has expired.
func (s *Server) attach(c *conn, id int64, password []byte, asked time.Duration) *session {
	if id != 0 {
		sess := s.sessions[id]
		if sess == nil || string(sess.password) != string(password) {
			return nil
		}
		if sess.conn != nil {
			sess.conn.tcp.Close()
		}
		sess.conn = c
		sess.expiry.Reset(sess.timeout)
		return sess
	}
	s.lastID++
	sess := &session{id: s.lastID, password: make([]byte, 16), conn: c}
	_, _ = rand.Read(sess.password) // never fails
	sess.timeout = min(max(asked, s.cfg.MinSessionTimeout), s.cfg.MaxSessionTimeout)
	sess.expiry = time.AfterFunc(sess.timeout, func() { s.Expire(sess.id) })
	s.sessions[sess.id] = sess
	return sess
}

// end removes a session and its znodes. The caller holds the lock.
func (s *Server) end(sess *session) {
	delete(s.sessions, sess.id)
	sess.expiry.Stop()
	s.tree.drop(sess.id)
	s.notify()
	if sess.conn != nil {
		sess.conn.hangUp()
	}
}
