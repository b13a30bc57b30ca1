package dispatcher

import (
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promauto"

	"github.com/notyet/notyet/internal/sendlog"
	"github.com/notyet/notyet/schemas"
)

// metrics of all parts: each part counts its own.
type metrics struct {
	ownershipMetrics
	claimMetrics
	fetchMetrics
	sendMetrics
	settleMetrics
	indexMetrics
	retireMetrics
	timerMetrics
	flowMetrics

	retries prometheus.Counter
}

type ownershipMetrics struct {
	fenced, abandoned, doubts prometheus.Counter
}

type claimMetrics struct {
	claims, swept prometheus.Counter
	claimTime     prometheus.Histogram
}

type fetchMetrics struct {
	bodies, proven, stagedLate prometheus.Counter
	fetchTime                  prometheus.Histogram
}

type sendMetrics struct {
	postponed, unresponsive prometheus.Counter
	lateness                prometheus.Histogram
}

type settleMetrics struct {
	delivered, mismatch, deferredEvents, refusedTransitions prometheus.Counter
	dead                                                    *prometheus.CounterVec
	settleTime                                              prometheus.Histogram
}

type indexMetrics struct {
	rebuilds, drift, indexErrors prometheus.Counter
}

type retireMetrics struct {
	retired              prometheus.Counter
	letters, letterBytes prometheus.Gauge
}

type timerMetrics struct {
	runs        prometheus.Counter
	droppedRuns *prometheus.CounterVec // why
}

// Why a run of a timer was dropped.
const (
	dropMissed  = "missed"
	dropOverlap = "overlap"
)

type flowMetrics struct {
	held, recalled prometheus.Counter
}

func newMetrics(reg prometheus.Registerer) *metrics {
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
	for _, why := range []string{dropMissed, dropOverlap} {
		dropped.WithLabelValues(why)
	}
	size := func(name, help string) prometheus.Gauge {
		return f.NewGauge(prometheus.GaugeOpts{Namespace: "notyet", Subsystem: "dispatcher", Name: name, Help: help})
	}
	return &metrics{
		ownershipMetrics: ownershipMetrics{
			fenced:    counter("fenced_total", "Writes refused because a slot had another owner."),
			abandoned: counter("abandoned_slots_total", "Slots lost while tasks were claimed."),
			doubts:    counter("in_doubt_total", "Tasks that an earlier owner had claimed and not closed."),
		},
		claimMetrics: claimMetrics{
			claims: counter("claims_total", "Claims of some slots' near future."),
			swept:  counter("swept_total", "Overdue lines that only the sweep of the database found."),
			claimTime: f.NewHistogram(prometheus.HistogramOpts{Namespace: "notyet", Subsystem: "dispatcher", Name: "claim_seconds",
				Help: "Time of one claim, with the reading of what it claimed.", Buckets: prometheus.ExponentialBuckets(0.001, 2, 12)}),
		},
		fetchMetrics: fetchMetrics{
			bodies:     counter("bodies_read_total", "Task bodies read from the database."),
			proven:     counter("proven_total", "Tasks in doubt that the send log proved delivered."),
			stagedLate: counter("staged_late_total", "Tasks that were due already as they reached memory."),
			fetchTime: f.NewHistogram(prometheus.HistogramOpts{Namespace: "notyet", Subsystem: "dispatcher", Name: "fetch_seconds",
				Help: "Time to read a run of bodies and to note the intents.", Buckets: prometheus.ExponentialBuckets(0.001, 2, 12)}),
		},
		sendMetrics: sendMetrics{
			postponed:    counter("postponed_total", "Tasks put off because their target did not answer or refused them."),
			unresponsive: counter("sick_targets_total", "Targets that stopped answering."),
			lateness: f.NewHistogram(prometheus.HistogramOpts{Namespace: "notyet", Subsystem: "dispatcher", Name: "lateness_seconds",
				Help: "From the instant at which an attempt was due to its acknowledgement by Kafka, or by the receiver of a callback.", Buckets: prometheus.ExponentialBuckets(0.0005, 2, 20)}),
		},
		settleMetrics: settleMetrics{
			delivered:          counter("delivered_total", "Tasks that Kafka, or the receiver of a callback, has acknowledged."),
			mismatch:           counter("mismatch_total", "Settled ranges in which the database counted another number of tasks."),
			deferredEvents:     counter("deferred_deliveries_events_total", "Events of deliveries that were stored because the results topic did not take them in time."),
			refusedTransitions: counter("refused_exits_total", "Ends of tasks that the database refused for what was in them."),
			dead:               dead,
			settleTime: f.NewHistogram(prometheus.HistogramOpts{Namespace: "notyet", Subsystem: "dispatcher", Name: "settle_seconds",
				Help: "Time of one settlement.", Buckets: prometheus.ExponentialBuckets(0.001, 2, 12)}),
		},
		indexMetrics: indexMetrics{
			rebuilds:    counter("index_rebuilds_total", "Slots loaded into the index from nothing."),
			drift:       counter("index_drift_total", "Slots whose index had drifted from the database."),
			indexErrors: counter("index_errors_total", "Failed calls to the index."),
		},
		retireMetrics: retireMetrics{
			retired:     counter("retired_total", "Ended tasks forgotten after the retention."),
			letters:     size("dead_letters", "Dead letters that are kept, about, as the owner of slot 0 sees them; 0 elsewhere."),
			letterBytes: size("dead_letter_bytes", "Space that dead letters take in the database, about, as the owner of slot 0 sees it; 0 elsewhere."),
		},
		timerMetrics: timerMetrics{
			runs:        counter("timer_runs_total", "Runs of timers that were made."),
			droppedRuns: dropped,
		},
		flowMetrics: flowMetrics{
			held:     counter("held_total", "Tasks that their target's policy kept from being released, each time that it did."),
			recalled: counter("held_recalled_total", "Held tasks that were called back to be released."),
		},
		retries: counter("retries_total", "Calls to the database, the send log or Kafka that failed and were tried again."),
	}
}

// registerGauges shows what the parts hold.
func registerGauges(reg prometheus.Registerer, fl *inFlight, outs *outlets, sent *sendlog.Log) {
	f := promauto.With(reg)
	gauge := func(name, help string, value func() int) {
		f.NewGaugeFunc(prometheus.GaugeOpts{Namespace: "notyet", Subsystem: "dispatcher", Name: name, Help: help}, func() float64 {
			fl.mu.Lock()
			defer fl.mu.Unlock()
			return float64(value())
		})
	}
	gauge("slots", "Slots owned.", func() int { return len(fl.slots) })
	gauge("claimed_tasks", "Claimed tasks that are not settled.", func() int { return fl.entries })
	gauge("staged_tasks", "Tasks in memory with their bodies.", func() int { return fl.staging.tasks })
	gauge("staged_bytes", "Memory that bodies of staged tasks take.", func() int { return fl.staging.bytes })
	gauge("refused_targets", "Targets that do not exist or may not be written.", func() int { return outs.refusals.count(false) })
	gauge("clock_refused_targets", "Targets whose brokers refuse the database's time.", func() int { return outs.refusals.count(true) })
	f.NewGaugeFunc(prometheus.GaugeOpts{Namespace: "notyet", Subsystem: "dispatcher", Name: "send_log_bytes",
		Help: "Space that the send log takes, about."}, func() float64 { return float64(sent.Bytes()) })
	f.NewGaugeFunc(prometheus.GaugeOpts{Namespace: "notyet", Subsystem: "dispatcher", Name: "send_log_full",
		Help: "1: the send log has no room, and nothing is sent."}, func() float64 {
		if sent.Full() != nil {
			return 1
		}
		return 0
	})
	gauge("unresponsive_targets", "Partitions of targets, and origins of callbacks, that do not answer.", func() int {
		n := 0
		for _, g := range outs.byKey {
			if g.outage != nil {
				n++
			}
		}
		return n
	})
	gauge("parked_tasks", "Tasks that are put off without reading their bodies until their target answers.", func() int { return fl.parkedTasks() })
	gauge("stuck_tasks", "Tasks with the producer that have been set aside.", func() int { return len(fl.stuck) })
	f.NewGaugeFunc(prometheus.GaugeOpts{Namespace: "notyet", Subsystem: "dispatcher", Name: "clock_offset_seconds",
		Help: "How far the database's clock, which tasks go by, is ahead of this machine's."}, func() float64 { return fl.clock.Offset().Seconds() })
	gauge("unsettled_milliseconds", "How long ago the oldest delivery was made that is not durable: if the dispatcher died, it would be made again.", func() int {
		return int(fl.unsettled.oldest().Milliseconds())
	})
}
