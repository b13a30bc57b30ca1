package sim

import (
	"context"
	"errors"
	"maps"
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
	name  string
	mu    sync.Mutex
	now   condition
	apart map[string]condition // what processes meet that alone are treated otherwise, by their names
	well  chan struct{}        // closed when a condition changes
	rnd   *rand.Rand
	hits  int // calls that met something else than a server that is well
	all   int
	by    map[string]int // all, by the names of processes
}

func newServer(name string, seed uint64) *server {
	return &server{name: name, apart: map[string]condition{}, by: map[string]int{}, well: make(chan struct{}), rnd: rand.New(rand.NewPCG(seed, 77))}
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
	s.changed()
}

// setFor is set for one process and its later starts.
func (s *server) setFor(name string, c condition) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.apart[name] = c
	if c == (condition{}) {
		delete(s.apart, name)
	}
	s.changed()
}

func (s *server) changed() {
	close(s.well)
	s.well = make(chan struct{})
}

// state is the condition that a call meets. p is who calls; nil: nobody in particular.
func (s *server) state(p *process) condition {
	s.mu.Lock()
	defer s.mu.Unlock()
	c, _ := s.seenBy(p)
	s.all++
	if p != nil {
		s.by[p.name]++
	}
	if c != (condition{}) {
		s.hits++
	}
	return c
}

// lostBy says that a process alone meets what it meets.
func (s *server) lostBy(p *process) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	_, alone := s.seenBy(p)
	return alone
}

// seenBy is the condition that a process meets, and whether it alone does. mu is held.
func (s *server) seenBy(p *process) (c condition, alone bool) {
	if p != nil {
		c, alone = s.apart[p.name]
	}
	if !alone {
		c = s.now
	}
	return c, alone
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

// callers is how many calls each process has made, by name.
func (s *server) callers() map[string]int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return maps.Clone(s.by)
}

// await waits while the server is frozen for p (or mute, where answers count), until one of the others ends the wait: false.
func (s *server) await(p *process, answers bool, done, dead <-chan struct{}) bool {
	for {
		s.mu.Lock()
		c, _ := s.seenBy(p)
		well := s.well
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
