package sim

import (
	"context"
	"slices"
	"sync"
	"time"

	"github.com/notyet/notyet/internal/defaults"
	"github.com/notyet/notyet/internal/election"
)

// electorate is the election among the dispatchers of one world: sessions that end in silence, epochs from the database,
// trust that ends before the session does.
type electorate struct {
	s       *server
	session time.Duration
	slots   func() (int, error) // how many are to have owners
	epochs  func(ctx context.Context) (int64, error)

	mu      sync.Mutex
	failing map[string]time.Time // members that cannot work, since when
	members map[string]*member   // by id: whose session lives
	heard   map[string]time.Time
	owners  []string
	epoch   int64
	dirty   bool
}

func newElectorate(s *server, session time.Duration, slots func() (int, error), epochs func(context.Context) (int64, error)) *electorate {
	return &electorate{s: s, session: session, slots: slots, epochs: epochs, failing: map[string]time.Time{}, members: map[string]*member{}, heard: map[string]time.Time{}}
}

// run ends sessions and shares the slots anew, until ctx ends.
func (e *electorate) run(ctx context.Context) {
	for pause(ctx, 50*time.Millisecond) == nil {
		if c := e.s.state(nil); c.frozen || c.refuse {
			continue
		}
		n, err := e.slots()
		e.mu.Lock()
		if err == nil && n != len(e.owners) {
			e.owners = append(make([]string, 0, n), e.owners[:min(n, len(e.owners))]...)
			e.owners = append(e.owners, make([]string, n-len(e.owners))...)
			e.dirty = true
		}
		for id, at := range e.heard {
			if time.Since(at) >= e.session {
				e.gone(id)
			}
		}
		for id := range e.members {
			if e.mustLeave(id) {
				e.members[id].distrust()
				e.gone(id)
			}
		}
		dirty := e.dirty
		e.mu.Unlock()
		if dirty {
			e.share(ctx)
		}
	}
}

// mustLeave says that a member cannot work while another one can, as internal/election does. mu is held.
func (e *electorate) mustLeave(id string) bool {
	since, failing := e.failing[id]
	if !failing || time.Since(since) < 3*defaults.FailingAfter {
		return false
	}
	return e.anotherWorks(id)
}

// anotherWorks says that another member works. mu is held.
func (e *electorate) anotherWorks(id string) bool {
	for other := range e.members {
		if _, fails := e.failing[other]; other != id && !fails {
			return true
		}
	}
	return false
}

func (e *electorate) gone(id string) {
	delete(e.members, id)
	delete(e.heard, id)
	e.dirty = true
}

// share gives each slot to a living member, moving as little as it can, under a new epoch.
func (e *electorate) share(ctx context.Context) {
	bound, cancel := context.WithTimeout(ctx, 2*time.Second)
	epoch, err := e.epochs(bound)
	cancel()
	if err != nil {
		return
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	if epoch <= e.epoch { // the database was set back: the next question has a higher one
		return
	}
	ids := make([]string, 0, len(e.members))
	for id := range e.members {
		ids = append(ids, id)
	}
	slices.Sort(ids)
	e.epoch, e.dirty = epoch, false
	if len(ids) == 0 {
		return
	}
	share, has := (len(e.owners)+len(ids)-1)/len(ids), map[string]int{}
	for slot, owner := range e.owners {
		if !slices.Contains(ids, owner) || has[owner] >= share {
			e.owners[slot] = ""
		} else {
			has[owner]++
		}
	}
	for slot, owner := range e.owners {
		if owner == "" {
			least := slices.MinFunc(ids, func(a, b string) int { return has[a] - has[b] })
			e.owners[slot] = least
			has[least]++
		}
	}
	for _, m := range e.members {
		signal(m.watch)
	}
}

func signal(c chan struct{}) {
	select {
	case c <- struct{}{}:
	default:
	}
}

// member is one process start.
type member struct {
	e     *electorate
	p     *process
	id    string
	watch chan struct{}

	mu      sync.Mutex
	current election.Assignment
	alive   map[string]bool
	heard   time.Time
	joined  int64 // what was assigned until then was to an earlier session
}

var _ election.Source = (*member)(nil)

func (e *electorate) member(p *process, id string) *member {
	return &member{e: e, p: p, id: id, watch: make(chan struct{}, 1), alive: map[string]bool{}}
}

// Run keeps the session alive, and leaves at once when ctx ends, if it can.
func (m *member) Run(ctx context.Context) error {
	defer m.leave()
	for {
		m.beat(ctx)
		if pause(ctx, m.e.session/8) != nil {
			return nil
		}
	}
}

func (m *member) beat(ctx context.Context) {
	if m.p.gate() != nil {
		return
	}
	sent := time.Now()
	if m.resting() {
		return
	}
	c := m.e.s.state(m.p)
	if c.refuse || m.e.s.chance(c.before) || pause(ctx, c.delay) != nil {
		return
	}
	bound, cancel := context.WithTimeout(ctx, m.e.session/4)
	defer cancel()
	if !m.e.s.await(m.p, false, bound.Done(), m.p.dead) {
		return
	}
	m.e.mu.Lock()
	switch other := m.e.members[m.id]; {
	case other == nil:
		m.e.members[m.id], m.e.dirty = m, true
		m.joined = m.e.epoch
	case other != m: // an earlier start of the same id, whose session still lives
		m.e.mu.Unlock()
		return
	}
	m.e.heard[m.id] = time.Now()
	now := election.Assignment{Epoch: m.e.epoch}
	for slot, owner := range m.e.owners {
		if owner == m.id && m.e.epoch > m.joined {
			now.Slots = append(now.Slots, slot)
		}
	}
	alive := map[string]bool{}
	for id := range m.e.members {
		alive[id] = true
		now.Members = append(now.Members, id)
	}
	m.e.mu.Unlock()
	slices.Sort(now.Members)
	if !m.e.s.await(m.p, true, bound.Done(), m.p.dead) || m.e.s.chance(c.after) || m.p.gate() != nil {
		return
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	m.heard, m.alive = sent, alive
	if now.Epoch > m.current.Epoch {
		m.current = now
	}
	signal(m.watch)
}

// Report notes whether this process can work.
func (m *member) Report(err error) {
	if m.p.gate() != nil {
		return
	}
	m.e.mu.Lock()
	defer m.e.mu.Unlock()
	switch _, failing := m.e.failing[m.id]; {
	case err == nil:
		delete(m.e.failing, m.id)
	case !failing:
		m.e.failing[m.id] = time.Now()
	}
}

// resting says that a member that cannot work has left, and does not come back while another one works, as internal/election does.
func (m *member) resting() bool {
	m.e.mu.Lock()
	defer m.e.mu.Unlock()
	if _, failing := m.e.failing[m.id]; !failing || m.e.members[m.id] != nil {
		return false
	}
	return m.e.anotherWorks(m.id)
}

func (m *member) distrust() {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.heard = time.Time{}
}

// leave ends trust first, and then the session.
func (m *member) leave() {
	m.distrust()
	if c := m.e.s.state(m.p); m.p.gate() != nil || c.refuse || c.frozen {
		return
	}
	m.e.mu.Lock()
	defer m.e.mu.Unlock()
	if m.e.members[m.id] == m {
		m.e.gone(m.id)
	}
}

// Watch, Current, Trusted and Alive answer what the last beat has brought.
func (m *member) Watch() <-chan struct{} { return m.watch }

func (m *member) Current() election.Assignment {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.current
}

func (m *member) fresh() bool { return !m.heard.IsZero() && time.Since(m.heard) < m.e.session*2/3 }

func (m *member) Trusted() bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.fresh()
}

func (m *member) Alive(id string) bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	return !m.fresh() || m.alive[id]
}
