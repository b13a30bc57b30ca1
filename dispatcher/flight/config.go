package flight

import (
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promauto"
	"go.uber.org/zap"

	"github.com/notyet/notyet/dispatcher/flight/target"
	"github.com/notyet/notyet/schemas"
)

// Config of flight. All fields but CallLimits are required; the dispatcher's configuration says
// what they mean.
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
	Tenants            *Tenants

	// CallLimits returns how many callbacks may be under way to one origin, from all dispatchers
	// together, and to all origins from this one. nil: no callbacks are made.
	CallLimits func() (each, all int)
}

// lastSend is how long a slot to be given away goes on sending. A task sent later could not be
// settled before the slot goes, and the next owner would send the task again.
func (c Config) lastSend() time.Duration { return c.DrainTimeout - min(c.DrainTimeout/8, time.Second) }

// CheckEvery is how often Check is called: often enough for all events to be stored within
// DrainTimeout.
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

// env is for every part of flight. New sets its fields.
type env struct {
	cfg      Config
	clock    Clock
	log      *zap.Logger
	metrics  *Metrics
	kicks    Kicks
	stopping atomic.Bool // see Stop
}

// Kicks has one for each loop. Flight and the loops give kicks, and only the loop takes its own.
type Kicks struct{ Own, Claim, Sweep, Fetch, Release, Topics, Settle, Timers, Overlap, Held, Slots Kick }

// NewKicks makes all kicks.
func NewKicks() Kicks {
	return Kicks{Own: newKick(), Claim: newKick(), Sweep: newKick(), Fetch: newKick(), Release: newKick(), Topics: newKick(), Settle: newKick(), Timers: newKick(), Overlap: newKick(), Held: newKick(), Slots: newKick()}
}

// Kick wakes a loop; kicks to a loop at work become one.
type Kick chan struct{}

func newKick() Kick { return make(Kick, 1) }

// Now wakes the loop.
func (k Kick) Now() {
	select {
	case k <- struct{}{}:
	default:
	}
}

// Metrics are the counts of flight. The loops count retries and dropped runs as well.
type Metrics struct {
	Abandoned, Doubts, Swept                     prometheus.Counter
	Bodies, Proven, StagedLate                   prometheus.Counter
	Postponed, Unresponsive, Delivered, Mismatch prometheus.Counter
	Held, Recalled, Retries, Circuits            prometheus.Counter

	NotSent     *prometheus.CounterVec // callbacks, by why
	Dead        *prometheus.CounterVec // by kind
	Died        func(target string)    // counts a dead letter
	DroppedRuns *prometheus.CounterVec // by why: DropMissed, DropOverlap
}

// Why a run of a timer was dropped.
const (
	DropMissed  = "missed"
	DropOverlap = "overlap"
)

// NewMetrics registers the counts.
func NewMetrics(reg prometheus.Registerer) *Metrics {
	f := promauto.With(reg)
	counter := func(name, help string) prometheus.Counter {
		return f.NewCounter(prometheus.CounterOpts{Namespace: "notyet", Subsystem: "dispatcher", Name: name, Help: help})
	}
	dead := f.NewCounterVec(prometheus.CounterOpts{Namespace: "notyet", Subsystem: "dispatcher", Name: "dead_total", Help: "Dead letters, by kind."}, []string{"kind"})
	for _, kind := range []string{schemas.KindDead, schemas.KindUndeliverable, schemas.KindExpired, schemas.KindCallback} {
		dead.WithLabelValues(kind) // there from the start: a rate misses the first step of a new series
	}
	dropped := f.NewCounterVec(prometheus.CounterOpts{Namespace: "notyet", Subsystem: "dispatcher", Name: "timer_runs_dropped_total",
		Help: "Runs of timers that were dropped, by why: missed, or overlap (an earlier one was unfinished)."}, []string{"why"})
	for _, why := range []string{DropMissed, DropOverlap} {
		dropped.WithLabelValues(why)
	}
	callbacks := func(name, help string) prometheus.CounterOpts {
		return prometheus.CounterOpts{Namespace: "notyet", Subsystem: "callback", Name: name, Help: help}
	}
	notSent := f.NewCounterVec(callbacks("not_sent_total", "Requests that were put off without an attempt."), []string{"why"})
	for _, why := range []string{target.Full, target.OriginFull, target.Circuit} {
		notSent.WithLabelValues(why)
	}
	return &Metrics{
		Abandoned:    counter("abandoned_slots_total", "Slots lost while tasks were claimed."),
		Doubts:       counter("in_doubt_total", "Tasks that an earlier owner had claimed and not closed."),
		Swept:        counter("swept_total", "Overdue lines that only the sweep of the database found."),
		Bodies:       counter("bodies_read_total", "Task bodies read from the database."),
		Proven:       counter("proven_total", "Tasks in doubt that the send log proved delivered."),
		StagedLate:   counter("staged_late_total", "Tasks that were due already as they reached memory."),
		Postponed:    counter("postponed_total", "Tasks put off because their target did not answer or refused them."),
		Unresponsive: counter("sick_targets_total", "Targets that stopped answering."),
		Delivered:    counter("delivered_total", "Tasks that Kafka, or the receiver of a callback, has acknowledged."),
		Mismatch:     counter("mismatch_total", "Settled ranges in which the database had other tasks."),
		Held:         counter("held_total", "Tasks that their target's policy kept from being released, each time that it did."),
		Recalled:     counter("held_recalled_total", "Held tasks that were called back to be released."),
		Retries:      counter("retries_total", "Calls to the database, the send log or Kafka that failed and were tried again."),
		Circuits:     f.NewCounter(callbacks("circuits_opened_total", "Origins that stopped answering.")),
		NotSent:      notSent,
		Dead:         dead,
		Died:         func(string) {},
		DroppedRuns:  dropped,
	}
}
