package share

import "time"

const (
	// slowAfter is how long a holder may have a seat before counting as slow.
	slowAfter = time.Second
	// provenFor is how long an answer shows that a place answers.
	provenFor = 10 * time.Minute
	// aloneFor is how long no other tenant took a seat before a tenant counts as alone.
	aloneFor = 10 * time.Minute
)

// Room has seats. Tenants share them first, and then the places of each tenant, such as origins. So
// no number of names buys a tenant more. A holder's bound is a ninth of the free seats and the
// holder's own; n that give nothing back leave (8/9)^n of the room. Beyond it a holder may have as
// many seats as came back from it in the latest second, up to half, unless half of the room is in
// slow hands. A lone tenant may have all but a sixteenth. Where a tenant has more than a ninth,
// slow places have half of that. The owner of the Room locks it.
type Room struct {
	Total int

	held, slow int
	young      []*Seat // in the order in which they were taken; the first has been held for no longer than slowAfter
	latest     *Holder // the tenant that took the latest seat
	others     time.Time
}

// Holder is a tenant or a place. The zero Holder has nothing.
type Holder struct {
	held, slow int
	aged       int // seats that were held for longer than slowAfter
	quick      Recent
	answered   time.Time
}

// Held is how many seats the holder has.
func (h *Holder) Held() int { return h.held }

// Seat is held by a place for a tenant.
type Seat struct {
	tenant, place *Holder
	since         time.Time
	slow, aged    bool
	left          bool
}

// Held is how many seats are taken.
func (r *Room) Held() int { return r.held }

// Slow is how many seats counted as slow at the latest call of May.
func (r *Room) Slow() int { return r.slow }

// May says whether a place may have a seat on account of a tenant.
func (r *Room) May(tenant, place *Holder, now time.Time) bool {
	r.age(now)
	left, calm := r.Total-r.held, r.slow < max(r.Total/2, 1)
	if left <= 0 {
		return false
	}
	free := left + tenant.held
	bound := most(free, tenant, calm, now)
	if r.alone(tenant, now) {
		bound = max(bound, free-free/16)
	}
	if tenant.held >= bound || !place.proven(now) && tenant.slow >= max(bound/2, free/9, 1) {
		return false
	}
	return place.held < most(bound-tenant.held+place.held, place, calm, now)
}

// most is a holder's bound, of the free seats and the holder's own.
func most(free int, h *Holder, calm bool, now time.Time) int {
	n := max(free/9, 1)
	if calm {
		n = max(n, min(h.quick.Within(time.Second, now), free/2))
	}
	return n
}

func (r *Room) alone(tenant *Holder, now time.Time) bool {
	return (r.latest == nil || r.latest == tenant) && (r.others.IsZero() || now.Sub(r.others) >= aloneFor)
}

// proven says that a place answers, as far as is known.
func (h *Holder) proven(now time.Time) bool {
	return h.aged == 0 && !h.answered.IsZero() && now.Sub(h.answered) < provenFor
}

// Take gives a seat after a yes of May. A place without a known answer is slow from the start.
func (r *Room) Take(tenant, place *Holder, now time.Time) *Seat {
	if r.latest != nil && r.latest != tenant {
		r.others = now
	}
	r.latest = tenant
	s := &Seat{tenant: tenant, place: place, since: now}
	r.count(s, 1)
	r.young = append(r.young, s)
	if !place.proven(now) {
		r.slows(s, 1)
	}
	return s
}

// Leave takes a seat back. answered says that the place has answered, in time.
func (r *Room) Leave(s *Seat, answered bool, now time.Time) {
	s.left = true
	if r.count(s, -1); s.slow {
		r.slows(s, -1)
	}
	if s.aged {
		s.place.aged--
	}
	if !answered {
		return
	}
	s.place.answered, s.tenant.answered = now, now
	if now.Sub(s.since) <= slowAfter {
		s.place.quick.One(time.Second, now)
		s.tenant.quick.One(time.Second, now)
	}
}

// age counts the seats that have become slow, looking at each once.
func (r *Room) age(now time.Time) {
	for len(r.young) > 0 && (r.young[0].left || now.Sub(r.young[0].since) > slowAfter) {
		if s := r.young[0]; !s.left {
			s.aged = true
			if s.place.aged++; !s.slow {
				r.slows(s, 1)
			}
		}
		r.young[0] = nil
		r.young = r.young[1:]
	}
}

func (r *Room) count(s *Seat, n int) {
	r.held, s.tenant.held, s.place.held = r.held+n, s.tenant.held+n, s.place.held+n
}

func (r *Room) slows(s *Seat, n int) {
	s.slow = n > 0
	r.slow, s.tenant.slow, s.place.slow = r.slow+n, s.tenant.slow+n, s.place.slow+n
}

// Recent counts events in the latest spans of a time: at least in one, at most in two. All calls
// name the same span. The zero Recent has counted nothing.
type Recent struct {
	began     time.Time
	now, then int
}

func (r *Recent) roll(span time.Duration, now time.Time) {
	if past := now.Sub(r.began); past >= 2*span {
		*r = Recent{began: now}
	} else if past >= span {
		*r = Recent{began: now, then: r.now}
	}
}

// One counts one more.
func (r *Recent) One(span time.Duration, now time.Time) { r.roll(span, now); r.now++ }

// Within returns how many there were in this span or in the one before, whichever had more.
func (r *Recent) Within(span time.Duration, now time.Time) int {
	r.roll(span, now)
	return max(r.now, r.then)
}
