package callback

import (
	"sync"
	"time"

	"github.com/notyet/notyet/internal/share"
)

// room decides which requests may be in flight, so that an origin that is slow or does not answer
// delays only itself. It is bounded in requests and in origins.
type room struct {
	mu        sync.Mutex
	ofAll     int     // to one origin from all dispatchers together
	part      float64 // of it that is this dispatcher's
	perOrigin int     // this dispatcher's share of ofAll
	total     int     // to all origins from this dispatcher
	origins   map[string]*originState
	inFlight  int
	unproven  int // those of them that were let in although their origin had not proved to answer
	open      int // open circuits
}

// originState is what is known of an origin.
type originState struct {
	inFlight int
	circuit  circuit
	since    time.Time // of the last answer, or of the first request after a rest
	answered time.Time // of the last answer; zero: none yet
	used     time.Time
}

const (
	// unprovenShare: origins that do not prove to answer take at most half of the room together.
	// Otherwise a caller with a thousand names for a host that never answers could take all of it.
	unprovenShare = 2

	// silentAfter is how long an origin may leave requests unanswered and still count as proved.
	silentAfter = 5 * time.Second

	// provenFor is how long an answer proves that an origin answers.
	provenFor = 10 * time.Minute

	// maxOrigins limits the memory, about 300 bytes each. It must be above the requests in flight.
	maxOrigins = 10_000

	// fullPause is how long a request is put off that has no room. An answer makes room earlier.
	fullPause = 100 * time.Millisecond
)

// permit is a request's seat.
type permit struct {
	origin          string
	unproven, probe bool
}

func newRoom(perOrigin, total int) *room {
	return &room{ofAll: perOrigin, part: 1, perOrigin: perOrigin, total: total, origins: map[string]*originState{}}
}

// limit sets other numbers. What is in flight beyond them ends first.
func (r *room) limit(ofAll, total int) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.ofAll, r.total = ofAll, total
	r.perOrigin = share.Of(r.ofAll, r.part)
}

// share sets this dispatcher's part of the requests to one origin: at least one.
func (r *room) share(part float64) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.part = part
	r.perOrigin = share.Of(r.ofAll, r.part)
}

// Why a request was not let in.
const (
	whyFull    = "full"        // no room at all, or none for an origin that has not proved to answer
	whyOrigin  = "origin_full" // its origin has enough in flight
	whyCircuit = "circuit"     // its origin does not answer
)

// enter takes a seat, or returns why there is none and for how long to put the request off.
func (r *room) enter(origin string, now time.Time) (p permit, why string, wait time.Duration) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if why, wait = r.blocked(origin, now); why != "" {
		return permit{}, why, wait
	}
	o := r.origins[origin]
	if o == nil {
		r.makeRoom()
		o = &originState{}
		r.origins[origin] = o
	}
	p = permit{origin: origin, unproven: !o.proven(now), probe: o.circuit.enter()}
	if o.inFlight == 0 {
		o.since = now
	}
	o.inFlight++
	o.used = now
	r.inFlight++
	if p.unproven {
		r.unproven++
	}
	return p, "", 0
}

// blocked returns why a request to the origin would not be let in, or "". mu is held.
func (r *room) blocked(origin string, now time.Time) (why string, wait time.Duration) {
	o := r.origins[origin]
	if o == nil {
		o = &originState{}
	}
	if wait = o.circuit.wait(now); wait > 0 {
		return whyCircuit, wait
	}
	free := r.total - r.inFlight
	switch {
	case free <= 0, !o.proven(now) && r.unproven >= max(r.total/unprovenShare, 1):
		return whyFull, fullPause
	case o.inFlight >= r.perOrigin, !share.Has(free, o.inFlight):
		return whyOrigin, fullPause
	}
	return "", 0
}

// leave gives a seat back. down is how long the origin's circuit lets nothing through, 0 if it is closed.
func (r *room) leave(p permit, o Outcome, now time.Time) (did change, down time.Duration) {
	r.mu.Lock()
	defer r.mu.Unlock()
	s := r.origins[p.origin] // it is there: only idle ones are forgotten
	s.inFlight--
	s.used = now
	r.inFlight--
	if p.unproven {
		r.unproven--
	}
	if o.Status != 0 {
		s.answered, s.since = now, now
	}
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

// proven reports whether the origin answers, as far as is known.
func (o *originState) proven(now time.Time) bool {
	return !o.answered.IsZero() && now.Sub(o.answered) < provenFor && (o.inFlight == 0 || now.Sub(o.since) < silentAfter)
}

// makeRoom forgets an origin if there are too many: of a few idle ones, the one that was used longest
// ago, and one that does not answer only if there is no other. Iteration begins at random. mu is
// held.
func (r *room) makeRoom() {
	if len(r.origins) < maxOrigins {
		return
	}
	oldest, seen := "", 0
	for name, o := range r.origins {
		seen++
		if o.inFlight == 0 && (oldest == "" || r.before(o, r.origins[oldest])) {
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

// counts returns the requests in flight, the origins that are known and the open circuits.
func (r *room) counts() (inFlight, origins, open int) {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.inFlight, len(r.origins), r.open
}
