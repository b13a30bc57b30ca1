package dispatcher

import (
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promauto"

	"github.com/notyet/notyet/schemas"
)

type metrics struct {
	delivered, claims, fenced, abandoned, doubts, proven, swept, retries, postponed, unresponsive, mismatch, rebuilds, drift, retired, indexErrors, deferredEvents, refusedTransitions, bodies prometheus.Counter

	letters, letterBytes prometheus.Gauge

	dead       *prometheus.CounterVec
	lateness   prometheus.Histogram
	settleTime prometheus.Histogram
	claimTime  prometheus.Histogram
	fetchTime  prometheus.Histogram
	stagedLate prometheus.Counter
}

func newMetrics(reg prometheus.Registerer, d *Dispatcher) *metrics {
	f := promauto.With(reg)
	counter := func(name, help string) prometheus.Counter {
		return f.NewCounter(prometheus.CounterOpts{Namespace: "notyet", Subsystem: "dispatcher", Name: name, Help: help})
	}
	gauge := func(name, help string, value func() int) {
		f.NewGaugeFunc(prometheus.GaugeOpts{Namespace: "notyet", Subsystem: "dispatcher", Name: name, Help: help}, func() float64 {
			d.mu.Lock()
			defer d.mu.Unlock()
			return float64(value())
		})
	}
	gauge("slots", "Slots owned.", func() int { return len(d.lines) })
	gauge("claimed_tasks", "Claimed tasks that are not settled.", func() int { return d.entries })
	gauge("staged_tasks", "Tasks in memory with their bodies.", func() int { return d.staging.tasks })
	gauge("staged_bytes", "Memory that bodies of staged tasks take.", func() int { return d.staging.bytes })
	gauge("refused_targets", "Targets that do not exist or may not be written.", func() int { return len(d.refusals.topics) })
	f.NewGaugeFunc(prometheus.GaugeOpts{Namespace: "notyet", Subsystem: "dispatcher", Name: "send_log_bytes",
		Help: "Space that the send log takes, about."}, func() float64 { return float64(d.sent.Bytes()) })
	f.NewGaugeFunc(prometheus.GaugeOpts{Namespace: "notyet", Subsystem: "dispatcher", Name: "send_log_full",
		Help: "1: the send log has no room, and nothing is sent."}, func() float64 {
		if d.sent.Full() != nil {
			return 1
		}
		return 0
	})
	gauge("unresponsive_targets", "Partitions of targets that do not answer.", func() int {
		n := 0
		for _, g := range d.targets {
			if g.outage != nil {
				n++
			}
		}
		return n
	})
	gauge("parked_tasks", "Tasks that are put off without reading their bodies until their target answers.", func() int { return d.parkedTasks() })
	gauge("stuck_tasks", "Tasks with the producer that have been set aside.", func() int { return len(d.stuck) })
	f.NewGaugeFunc(prometheus.GaugeOpts{Namespace: "notyet", Subsystem: "dispatcher", Name: "clock_offset_seconds",
		Help: "How far the database's clock, which tasks go by, is ahead of this machine's."}, func() float64 { return d.clock.Offset().Seconds() })
	gauge("unsettled_milliseconds", "How far done lies behind claimed, at most over the slots.", func() int {
		worst := int64(0)
		for _, l := range d.lines {
			if len(l.open()) > 0 {
				worst = max(worst, l.claimed-l.open()[0].pos)
			}
		}
		return int(worst)
	})
	dead := f.NewCounterVec(prometheus.CounterOpts{Namespace: "notyet", Subsystem: "dispatcher", Name: "dead_total", Help: "Dead letters, by kind."}, []string{"kind"})
	for _, kind := range []string{schemas.KindDead, schemas.KindUndeliverable, schemas.KindExpired} {
		dead.WithLabelValues(kind) // there from the start: a rate misses the first step of a new series
	}
	size := func(name, help string) prometheus.Gauge {
		return f.NewGauge(prometheus.GaugeOpts{Namespace: "notyet", Subsystem: "dispatcher", Name: name, Help: help})
	}
	return &metrics{
		letters:      size("dead_letters", "Dead letters that are kept, about, as the owner of slot 0 sees them; 0 elsewhere."),
		letterBytes:  size("dead_letter_bytes", "Space that dead letters take in the database, about, as the owner of slot 0 sees it; 0 elsewhere."),
		dead:         dead,
		delivered:    counter("delivered_total", "Records that Kafka has acknowledged."),
		claims:       counter("claims_total", "Claims of some slots' near future."),
		fenced:       counter("fenced_total", "Writes refused because a slot had another owner."),
		abandoned:    counter("abandoned_slots_total", "Slots lost while tasks were claimed."),
		doubts:       counter("in_doubt_total", "Tasks that an earlier owner had claimed and not closed."),
		proven:       counter("proven_total", "Tasks in doubt that the send log proved delivered."),
		swept:        counter("swept_total", "Overdue lines that only the sweep of the database found."),
		retries:      counter("retries_total", "Calls to the database, the send log or Kafka that failed and were tried again."),
		postponed:    counter("postponed_total", "Tasks put off because their target did not answer or refused them."),
		unresponsive: counter("sick_targets_total", "Targets that stopped answering."),
		mismatch:     counter("mismatch_total", "Settled ranges in which the database counted another number of tasks."),
		rebuilds:     counter("index_rebuilds_total", "Slots loaded into the index from nothing."),
		drift:        counter("index_drift_total", "Slots whose index had drifted from the database."),
		retired:      counter("retired_total", "Ended tasks forgotten after the retention."),
		indexErrors:  counter("index_errors_total", "Failed calls to the index."),

		bodies:             counter("bodies_read_total", "Task bodies read from the database."),
		refusedTransitions: counter("refused_exits_total", "Ends of tasks that the database refused for what was in them."),
		deferredEvents:     counter("deferred_deliveries_events_total", "Events of deliveries that were stored because the results topic did not take them in time."),

		lateness: f.NewHistogram(prometheus.HistogramOpts{Namespace: "notyet", Subsystem: "dispatcher", Name: "lateness_seconds",
			Help: "From the instant at which an attempt was due to Kafka's acknowledgement.", Buckets: prometheus.ExponentialBuckets(0.0005, 2, 20)}),
		stagedLate: counter("staged_late_total", "Tasks that were due already as they reached memory."),
		claimTime: f.NewHistogram(prometheus.HistogramOpts{Namespace: "notyet", Subsystem: "dispatcher", Name: "claim_seconds",
			Help: "Time of one claim, with the reading of what it claimed.", Buckets: prometheus.ExponentialBuckets(0.001, 2, 12)}),
		fetchTime: f.NewHistogram(prometheus.HistogramOpts{Namespace: "notyet", Subsystem: "dispatcher", Name: "fetch_seconds",
			Help: "Time to read a run of bodies and to note the intents.", Buckets: prometheus.ExponentialBuckets(0.001, 2, 12)}),
		settleTime: f.NewHistogram(prometheus.HistogramOpts{Namespace: "notyet", Subsystem: "dispatcher", Name: "settle_seconds",
			Help: "Time of one settlement.", Buckets: prometheus.ExponentialBuckets(0.001, 2, 12)}),
	}
}
