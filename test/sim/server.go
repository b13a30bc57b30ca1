package sim

import (
	"context"
	"errors"
	"math/rand/v2"
	"sync"
	"time"
)

// condition is how a server treats those who call it.
type condition struct {
	delay  time.Duration // before each call
	frozen bool          // nothing is done and nothing answered until it is well again
	mute   bool          // everything is done and nothing answered until it is well again
	refuse bool          // connections are cut, new ones refused
	before float64       // how often a call fails without effect
	after  float64       // how often a call has its effect and its answer is lost
	late   time.Duration // how long each answer is under way, on a connection
	odd    float64       // how often a call of the database fails with one of its own errors
}

// server is one that processes call. Its condition changes while they do.
type server struct {
	name string
	mu   sync.Mutex
	now  condition
	well chan struct{} // closed when the condition changes
	rnd  *rand.Rand
	hits int // calls that met something else than a server that is well
	all  int
}

func newServer(name string, seed uint64) *server {
	return &server{name: name, well: make(chan struct{}), rnd: rand.New(rand.NewPCG(seed, 77))}
}

var (
	errRefused = errors.New("simulated: the server refuses")
	errLost    = errors.New("simulated: the connection was lost")
	errDead    = errors.New("simulated: this process is dead")
	errSilent  = errors.New("simulated: no answer in time")
)

func (s *server) set(c condition) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.now = c
	close(s.well)
	s.well = make(chan struct{})
}

func (s *server) state() (condition, <-chan struct{}) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.all++
	if s.now != (condition{}) {
		s.hits++
	}
	return s.now, s.well
}

func (s *server) chance(p float64) bool {
	if p == 0 {
		return false
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.rnd.Float64() < p
}

func (s *server) pick(from ...error) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	return from[s.rnd.IntN(len(from))]
}

func (s *server) counts() (all, hits int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.all, s.hits
}

// await waits while the server is frozen (or mute, where answers count), until one of the others ends the wait: false.
func (s *server) await(answers bool, done, dead <-chan struct{}) bool {
	for {
		s.mu.Lock()
		c, well := s.now, s.well
		s.mu.Unlock()
		if !c.frozen && !(answers && c.mute) {
			return true
		}
		select {
		case <-well:
		case <-done:
			return false
		case <-dead:
			return false
		}
	}
}

var closedAlready = func() chan struct{} { c := make(chan struct{}); close(c); return c }()

func pause(ctx context.Context, d time.Duration) error {
	if d <= 0 {
		return ctx.Err()
	}
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-timer.C:
		return nil
	}
}
