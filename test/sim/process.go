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
	name  string
	apart bool // with a database of its own

	mu     sync.Mutex
	dead   chan struct{}
	killed bool
	going  chan struct{} // closed unless it is paused
	links  map[*link]bool
	pauses []interval

	heard time.Time // when the election server wrote the last answer that has come

	distrusted time.Time   // when it was last told that it is not trusted
	trusted    bool        // as it was last told
	regained   []time.Time // the last instants without trust, before it came back
	looks      []time.Time // when it asked the database for slots
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

// isTold notes whether it is told that it is trusted.
func (p *process) isTold(trusted bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if !trusted {
		p.distrusted = time.Now()
	} else if !p.trusted && !p.distrusted.IsZero() {
		p.regained = append(p.regained, p.distrusted)
	}
	p.trusted = trusted
}

// looksAtSlots notes that it asks the database for slots.
func (p *process) looksAtSlots() {
	p.mu.Lock()
	defer p.mu.Unlock()
	if now := time.Now(); len(p.looks) == 0 || p.looks[len(p.looks)-1].Before(now) {
		p.looks = append(p.looks, now)
	}
}

// unseen tells whether, at an instant by a clock that is behind by an error at most, it had lost its trust, had it back, and had not asked
// for slots since. It also returns since when.
func (p *process) unseen(at time.Time, clockError time.Duration) (since time.Time, yes bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, r := range p.regained {
		if r.Before(at) {
			since = r
		}
	}
	return since, !since.IsZero() && !slices.ContainsFunc(p.looks, func(l time.Time) bool { return !l.Before(since) && l.Before(at.Add(clockError)) })
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
