package flight

import (
	"sync/atomic"
	"time"

	"go.uber.org/zap"
)

// Config of what is in flight. All fields are required; the dispatcher's configuration says what they mean.
type Config struct {
	MemberID           string // the owner of slots, as the database names it
	LookAhead          time.Duration
	Furthest           time.Duration // no look-ahead is longer
	StageTasks         int
	StageBytes         int
	DrainTimeout       time.Duration
	UnresponsiveAfter  time.Duration
	UndeliverableAfter time.Duration
	MisfireAfter       time.Duration
}

// lastSend is how long a slot that is to be given away goes on sending. A task that is sent later could not be settled before the slot
// goes, and its next owner would send it again.
func (c Config) lastSend() time.Duration { return c.DrainTimeout - min(c.DrainTimeout/8, time.Second) }

// CheckEvery is how often Check is called: often enough for what must be stored within DrainTimeout.
func (c Config) CheckEvery() time.Duration {
	return max(min(time.Second, c.DrainTimeout/16), 10*time.Millisecond)
}

// Clock is the database's.
type Clock interface {
	Now() time.Time
	Millis() int64         // Unix ms
	Latest() int64         // Unix ms; no later than this, whatever the clock will turn out to be
	Offset() time.Duration // how far it is ahead of this machine's
}

// env is what every part of flight works with. New sets its fields.
type env struct {
	cfg      Config
	clock    Clock
	log      *zap.Logger
	metrics  *Metrics
	kicks    Kicks
	stopping atomic.Bool // see Stop
}

// Kicks has one for each loop. Flight and the loops give them, and only the loop takes its own.
type Kicks struct{ Own, Claim, Sweep, Fetch, Release, Settle, Timers, Overlap, Held, Slots Kick }

// NewKicks makes them all.
func NewKicks() Kicks {
	return Kicks{Own: newKick(), Claim: newKick(), Sweep: newKick(), Fetch: newKick(), Release: newKick(), Settle: newKick(), Timers: newKick(), Overlap: newKick(), Held: newKick(), Slots: newKick()}
}

// Kick wakes a loop; kicks that come while it is awake become one.
type Kick chan struct{}

func newKick() Kick { return make(Kick, 1) }

// Now wakes the loop.
func (k Kick) Now() {
	select {
	case k <- struct{}{}:
	default:
	}
}
