package target

import (
	"time"

	"github.com/notyet/notyet/internal/share"
)

// Origins are the receivers of callbacks. They share the seats of requests under way: so many for
// one origin, and of those for all the share of the request's tenant and origin (see share.Room).
// So a slow or silent origin delays only itself, and a tenant with many such origins only itself.
type Origins struct {
	each       int // seats for one origin: this dispatcher's part
	seats      share.Room
	tenants    map[string]*share.Holder
	nobody     share.Holder // a tenant without seats so far; nobody changes it
	byName     map[string]*Origin
	unknown    Origin // likewise an origin that nobody knows
	busy, down int
}

// Origin is one receiver, with its Bar and its seats.
type Origin struct {
	of     *Origins
	bar    Bar
	fails  int // in a row, while the Bar is open
	holder share.Holder
	kept   bool      // somebody may change it
	used   time.Time // the last time that it was kept
}

const (
	// mostOrigins limits the memory of origins without tasks, about 300 bytes each.
	mostOrigins = 10_000

	// failuresToClose in a row close an origin's Bar. An outage must not use up the attempts of all
	// tasks.
	failuresToClose = 10
)

// NewOrigins has no seats before Limit.
func NewOrigins() *Origins {
	return &Origins{tenants: map[string]*share.Holder{}, byName: map[string]*Origin{}}
}

// Limit sets how many requests may be under way to one origin from all dispatchers together, of
// which a part is for this one, and how many from this one to all origins. Requests under way
// beyond that end first.
func (os *Origins) Limit(each, all int, part float64) {
	os.each, os.seats.Total = share.Of(each, part), all
}

// Known is an origin as far as it is known.
func (os *Origins) Known(name string) *Origin {
	if o := os.byName[name]; o != nil {
		return o
	}
	return &os.unknown
}

// Keep is an origin to be kept in memory until Drop.
func (os *Origins) Keep(name string) *Origin {
	o := os.byName[name]
	if o == nil {
		for range 2 { // more than one: there may have been many more
			os.makeRoom()
		}
		o = &Origin{of: os}
		os.byName[name] = o
	}
	o.kept = true
	return o
}

// Drop says that nothing is sent to an origin for now. It may be forgotten.
func (o *Origin) Drop(now time.Time) { o.kept, o.used = false, now }

// Bar is the origin's. Responded and Failed open and close it.
func (o *Origin) Bar() *Bar { return &o.bar }

// Why a request has no seat.
const (
	Full       = "full"        // there is none at all, or none for its tenant, or for slow origins
	OriginFull = "origin_full" // its origin has enough under way
	Circuit    = "circuit"     // its origin is down
)

// Lacks says why a tenant has no seat for a request to an origin now; "": it has one.
func (os *Origins) Lacks(o *Origin, tenant string, now time.Time) string {
	of := os.tenants[tenant]
	if of == nil {
		of = &os.nobody
	}
	switch {
	case o.holder.Held() >= os.each:
		return OriginFull
	case !os.seats.May(of, &o.holder, now):
		return Full
	}
	return ""
}

// Take gives a seat to a tenant that lacks none.
func (os *Origins) Take(o *Origin, tenant string, now time.Time) *share.Seat {
	if os.tenants[tenant] == nil {
		os.tenants[tenant] = &share.Holder{}
	}
	if o.holder.Held() == 0 {
		os.busy++
	}
	return os.seats.Take(os.tenants[tenant], &o.holder, now)
}

// Leave takes a seat of an origin back. answered says that there was an answer, whatever it said.
func (os *Origins) Leave(o *Origin, s *share.Seat, answered bool, now time.Time) {
	os.seats.Leave(s, answered, now)
	if o.holder.Held() == 0 {
		os.busy--
	}
}

// makeRoom forgets an origin if there are too many: of a few idle ones the longest unused, and one
// that is down only if there is no other. Iteration begins at random.
func (os *Origins) makeRoom() {
	if len(os.byName) < mostOrigins {
		return
	}
	oldest, seen := "", 0
	for name, o := range os.byName {
		if !o.kept && (oldest == "" || o.before(os.byName[oldest])) {
			oldest = name
		}
		if seen++; seen >= 64 || seen >= 16 && oldest != "" {
			break
		}
	}
	if o := os.byName[oldest]; o != nil { // otherwise their tasks bound their number
		o.opens()
		delete(os.byName, oldest)
	}
}

func (o *Origin) before(other *Origin) bool {
	if o.bar.IsOpen() != other.bar.IsOpen() {
		return o.bar.IsOpen()
	}
	return o.used.Before(other.used)
}

// Responded notes an answer which does not say that the origin is in trouble, and says whether it
// ends an outage.
func (o *Origin) Responded() (news bool) {
	news = !o.bar.IsOpen()
	o.opens()
	o.fails = 0
	return news
}

func (o *Origin) opens() {
	if !o.bar.IsOpen() {
		o.of.down--
		o.bar.Open()
	}
}

// Failed notes a failure, and says whether it begins an outage. asked: the request was to ask; one
// sent before the outage changes nothing. after is the receiver's wish, which is about its task:
// others of the origin may be answered.
func (o *Origin) Failed(asked bool, after time.Duration, now time.Time) (news bool) {
	if o.fails++; o.bar.IsOpen() && o.fails >= failuresToClose {
		o.of.down++
		o.bar.Close(Down, now)
		news = true
	}
	if news || asked && !o.bar.IsOpen() {
		o.bar.Rest(min(after, pauses[Down].longest), now)
	}
	return news
}

// Counts are of seats taken, of those of them that are slow, and of origins with seats, in memory,
// and down.
type Counts struct{ Held, Slow, Busy, Known, Down int }

// Counts counts.
func (os *Origins) Counts() Counts {
	return Counts{os.seats.Held(), os.seats.Slow(), os.busy, len(os.byName), os.down}
}
