package flight

import (
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promauto"

	"github.com/notyet/notyet/schemas"
)

// Metrics are what flight counts. The loops count retries and dropped runs as well.
type Metrics struct {
	Abandoned, Doubts, Swept                     prometheus.Counter
	Bodies, Proven, StagedLate                   prometheus.Counter
	Postponed, Unresponsive, Delivered, Mismatch prometheus.Counter
	Held, Recalled, Retries                      prometheus.Counter

	Dead        *prometheus.CounterVec // by kind
	DroppedRuns *prometheus.CounterVec // by why: DropMissed, DropOverlap
}

// Why a run of a timer was dropped.
const (
	DropMissed  = "missed"
	DropOverlap = "overlap"
)

// NewMetrics registers them.
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
		Mismatch:     counter("mismatch_total", "Settled ranges in which the database counted another number of tasks."),
		Held:         counter("held_total", "Tasks that their target's policy kept from being released, each time that it did."),
		Recalled:     counter("held_recalled_total", "Held tasks that were called back to be released."),
		Retries:      counter("retries_total", "Calls to the database, the send log or Kafka that failed and were tried again."),
		Dead:         dead,
		DroppedRuns:  dropped,
	}
}
