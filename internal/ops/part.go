package ops

import (
	"context"
	"errors"
	"slices"
	"sync"
)

// Part is one of several parts of the process that can work without the others. /readyz stays 200
// while the checks of one part pass, and names what fails in the others.
type Part struct {
	name   string
	mu     sync.Mutex
	checks []check
}

var errStarting = errors.New("is not at work yet")

// Part adds a part, to be called before Run. It does not work until it has checks.
func (s *Server) Part(name string) *Part {
	p := &Part{name: name}
	p.Clear()
	s.parts = append(s.parts, p)
	return p
}

// Clear removes the checks, at any time.
func (p *Part) Clear() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.checks = nil
}

// Check is Server.Check for this part, at any time.
func (p *Part) Check(name string, run func(ctx context.Context) error, where ...string) {
	p.add(newCheck(name+" "+p.name, run, false, where))
}

// Hint is Server.Hint for this part, at any time.
func (p *Part) Hint(name string, run func(ctx context.Context) error, where ...string) {
	p.add(newCheck(name+" "+p.name, run, true, where))
}

func (p *Part) add(c check) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.checks = append(p.checks, c)
}

func (p *Part) now() []check {
	p.mu.Lock()
	defer p.mu.Unlock()
	if len(p.checks) == 0 {
		return []check{newCheck(p.name, func(context.Context) error { return errStarting }, false, nil)}
	}
	return slices.Clone(p.checks)
}
