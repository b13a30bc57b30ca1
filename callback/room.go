package callback

import (
	"sync"
	"time"

	"github.com/notyet/notyet/internal/share"
)

// room admits requests: so many to one origin, and of the seats of all origins the share of the
// request's tenant and origin (see share.Room). So a slow or silent origin delays only itself, and
// a tenant with many such origins only itself.
type room struct {
	mu        sync.Mutex
	ofAll     int     // to one origin from all dispatchers together
	part      float64 // of it that is this dispatcher's
	perOrigin int     // this dispatcher's share of ofAll
	seats     share.Room
	tenants   map[string]*share.Holder
	origins   map[string]*originState
	open      int // open circuits
}

type originState struct {
	share.Holder
	circuit circuit
	used    time.Time
}

const (
	// maxOrigins limits the memory, about 300 bytes each. Must be above the requests in flight.
	maxOrigins = 10_000

	// fullPause is for how long a request without room is put off. An answer makes room earlier.
	fullPause = 100 * time.Millisecond
)

type permit struct {
	origin *originState
	seat   *share.Seat
	probe  bool
}

func newRoom(perOrigin, total int) *room {
	return &room{ofAll: perOrigin, part: 1, perOrigin: perOrigin, seats: share.Room{Total: total}, tenants: map[string]*share.Holder{}, origins: map[string]*originState{}}
}

// limit sets other numbers. Requests in flight beyond them end first.
func (r *room) limit(ofAll, total int) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.ofAll, r.seats.Total = ofAll, total
	r.perOrigin = share.Of(r.ofAll, r.part)
}

// share sets the dispatcher's part of the requests to one origin: at least one.
func (r *room) share(part float64) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.part = part
	r.perOrigin = share.Of(r.ofAll, r.part)
}

// Why a request was not let in.
const (
	whyFull    = "full"        // no room at all, or none for its tenant, or for slow origins
	whyOrigin  = "origin_full" // its origin has enough in flight
	whyCircuit = "circuit"     // its origin does not answer
)

// enter takes a seat on account of a tenant. Without a seat, enter returns the cause and for how
// long to put the request off.
func (r *room) enter(origin, tenant string, now time.Time) (p permit, why string, wait time.Duration) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if why, wait = r.blocked(origin, tenant, now); why != "" {
		return permit{}, why, wait
	}
	o := r.origins[origin]
	if o == nil {
		r.makeRoom()
		o = &originState{}
		r.origins[origin] = o
	}
	if r.tenants[tenant] == nil {
		r.tenants[tenant] = &share.Holder{}
	}
	o.used = now
	return permit{origin: o, seat: r.seats.Take(r.tenants[tenant], &o.Holder, now), probe: o.circuit.enter()}, "", 0
}

// blocked returns why a request to the origin would not be let in, or "". mu is held.
func (r *room) blocked(origin, tenant string, now time.Time) (why string, wait time.Duration) {
	o, of := r.origins[origin], r.tenants[tenant]
	if o == nil {
		o = &originState{}
	}
	if of == nil {
		of = &share.Holder{}
	}
	if wait = o.circuit.wait(now); wait > 0 {
		return whyCircuit, wait
	}
	switch {
	case o.Held() >= r.perOrigin:
		return whyOrigin, fullPause
	case !r.seats.May(of, &o.Holder, now):
		return whyFull, fullPause
	}
	return "", 0
}

// leave gives a seat back. down is how long the origin's circuit lets nothing through; 0: closed.
func (r *room) leave(p permit, o Outcome, now time.Time) (did change, down time.Duration) {
	r.mu.Lock()
	defer r.mu.Unlock()
	s := p.origin
	s.used = now
	r.seats.Leave(p.seat, o.Status != 0, now)
	c := s.circuit.leave(o, p.probe, now)
	switch c {
	case opened:
		r.open++
	case closed:
		r.open--
	}
	if s.circuit.open {
		down = max(s.circuit.wait(now), time.Millisecond)
	}
	return c, down
}

// makeRoom forgets an origin if there are too many: of a few idle ones the longest unused, and one
// with an open circuit only if there is no other. Iteration begins at random. mu is held.
func (r *room) makeRoom() {
	if len(r.origins) < maxOrigins {
		return
	}
	oldest, seen := "", 0
	for name, o := range r.origins {
		seen++
		if o.Held() == 0 && (oldest == "" || r.before(o, r.origins[oldest])) {
			oldest = name
		}
		if seen >= 16 && oldest != "" {
			break
		}
	}
	if oldest == "" {
		return // all are in flight: their number is bounded by that
	}
	if r.origins[oldest].circuit.open {
		r.open--
	}
	delete(r.origins, oldest)
}

func (r *room) before(a, b *originState) bool {
	if a.circuit.open != b.circuit.open {
		return b.circuit.open
	}
	return a.used.Before(b.used)
}

// counts returns the requests in flight, the known origins and the open circuits.
func (r *room) counts() (inFlight, origins, open int) {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.seats.Held(), len(r.origins), r.open
}

// busy returns how many origins have requests in flight.
func (r *room) busy() (n int) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, o := range r.origins {
		if o.Held() != 0 {
			n++
		}
	}
	return n
}
