package sim

import (
	"context"
	"net"
	"slices"
	"sync"
	"time"
)

// process is the outside of a scanner or dispatcher: everything that it does passes its gates. Dead, nothing of it acts any
// more; paused, its calls wait.
type process struct {
	name string

	mu     sync.Mutex
	dead   chan struct{}
	killed bool
	going  chan struct{} // closed unless it is paused
	links  map[*link]bool
	pauses []interval

	heard time.Time // when the election server wrote the last answer that has come
}

// interval is a time in which a process was paused.
type interval struct{ from, to time.Time }

func newProcess(name string) *process {
	p := &process{name: name, dead: make(chan struct{}), going: make(chan struct{}), links: map[*link]bool{}}
	close(p.going)
	return p
}

// gate waits while the process is paused, and fails once it is dead.
func (p *process) gate() error { return p.gateWithin(nil) }

// gateWithin also ends the wait when patience does.
func (p *process) gateWithin(patience <-chan struct{}) error {
	for {
		p.mu.Lock()
		dead, going, killed := p.dead, p.going, p.killed
		p.mu.Unlock()
		if killed {
			return errDead
		}
		select {
		case <-going:
			return nil
		default:
		}
		select {
		case <-going:
		case <-dead:
		case <-patience:
			return errSilent
		}
	}
}

func (p *process) freeze() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.going = make(chan struct{})
	p.pauses = append(p.pauses, interval{from: time.Now()})
}

func (p *process) thaw() {
	p.mu.Lock()
	defer p.mu.Unlock()
	select {
	case <-p.going:
	default:
		close(p.going)
		p.pauses[len(p.pauses)-1].to = time.Now()
	}
}

// paused tells whether the process was paused in a span.
func (p *process) paused(from, to time.Time) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return slices.ContainsFunc(p.pauses, func(i interval) bool {
		return !i.from.After(to) && (i.to.IsZero() || !i.to.Before(from))
	})
}

// hears notes when the election server wrote an answer that has come now.
func (p *process) hears(at time.Time) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if at.After(p.heard) {
		p.heard = at
	}
}

func (p *process) lastHeard() time.Time {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.heard
}

// kill severs the process from everything, at once.
func (p *process) kill() {
	p.mu.Lock()
	if p.killed {
		p.mu.Unlock()
		return
	}
	p.killed = true
	close(p.dead)
	links := make([]*link, 0, len(p.links))
	for l := range p.links {
		links = append(links, l)
	}
	p.mu.Unlock()
	for _, l := range links {
		l.sever()
	}
}

func (p *process) alive() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return !p.killed
}

func (p *process) hold(l *link, yes bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if yes {
		p.links[l] = true
	} else {
		delete(p.links, l)
	}
}

type dialer func(ctx context.Context, network, address string) (net.Conn, error)
