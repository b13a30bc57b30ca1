package dispatcher

import (
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promauto"

	"github.com/notyet/notyet/dispatcher/flight"
	"github.com/notyet/notyet/internal/copies"
	"github.com/notyet/notyet/internal/sendlog"
	"github.com/notyet/notyet/store"
)

// metrics of all parts: each part counts its own, and flight counts for itself.
type metrics struct {
	*flight.Metrics

	fenced, claims, refusedTransitions, deferredEvents prometheus.Counter
	rebuilds, drift, indexErrors, retired, runs        prometheus.Counter
	movedTasks, undrained, notStored                   prometheus.Counter
	toMove                                             prometheus.Gauge

	claimTime, fetchTime, settleTime, lateness prometheus.Histogram
	letters, letterBytes                       prometheus.Gauge
}

func newMetrics(reg prometheus.Registerer) *metrics {
	f := promauto.With(reg)
	counter := func(name, help string) prometheus.Counter {
		return f.NewCounter(prometheus.CounterOpts{Namespace: "notyet", Subsystem: "dispatcher", Name: name, Help: help})
	}
	seconds := func(name, help string, first float64, n int) prometheus.Histogram {
		return f.NewHistogram(prometheus.HistogramOpts{Namespace: "notyet", Subsystem: "dispatcher", Name: name, Help: help, Buckets: prometheus.ExponentialBuckets(first, 2, n)})
	}
	size := func(name, help string) prometheus.Gauge {
		return f.NewGauge(prometheus.GaugeOpts{Namespace: "notyet", Subsystem: "dispatcher", Name: name, Help: help})
	}
	return &metrics{
		Metrics:            flight.NewMetrics(reg),
		fenced:             counter("fenced_total", "Writes refused because a slot had another owner."),
		claims:             counter("claims_total", "Claims of some slots' near future."),
		refusedTransitions: counter("refused_exits_total", "Ends of tasks that the database refused for what was in them."),
		deferredEvents:     counter("deferred_deliveries_events_total", "Events of deliveries that were stored because the results topic did not take them in time."),
		rebuilds:           counter("index_rebuilds_total", "Slots loaded into the index from nothing."),
		drift:              counter("index_drift_total", "Slots whose index had drifted from the database."),
		indexErrors:        counter("index_errors_total", "Failed calls to the index."),
		retired:            counter("retired_total", "Ended tasks forgotten after the retention."),
		runs:               counter("timer_runs_total", "Runs of timers that were made."),
		movedTasks:         counter("moved_tasks_total", "Tasks moved to other slots while their number changes."),
		undrained:          counter("undrained_slots_total", "Tries to split a slot that were given up because its deliveries did not end in time."),
		notStored:          counter("not_stored_total", "Acknowledgements by Kafka that did not count, because the offset was that of an earlier record: each record was sent again."),
		toMove:             size("slots_to_move", "Own slots whose tasks have not all moved, while the number of slots changes."),

		claimTime:  seconds("claim_seconds", "Time of one claim, with the reading of what it claimed.", 0.001, 12),
		fetchTime:  seconds("fetch_seconds", "Time to read a run of bodies and to note the intents.", 0.001, 12),
		settleTime: seconds("settle_seconds", "Time of one settlement.", 0.001, 12),
		lateness: seconds("lateness_seconds",
			"From the instant at which an attempt was due to its acknowledgement by Kafka, or by the receiver of a callback.", 0.0005, 20),

		letters:     size("dead_letters", "Dead letters that are kept, about, as the owner of slot 0 sees them; 0 elsewhere."),
		letterBytes: size("dead_letter_bytes", "Space that dead letters take in the database, about, as the owner of slot 0 sees it; 0 elsewhere."),
	}
}

// registerGauges shows what the send log, the clock and the copy of the database are like.
func registerGauges(reg prometheus.Registerer, sent *sendlog.Log, clock *store.Clock, copy *copies.Watch) {
	f := promauto.With(reg)
	gauge := func(name, help string, value func() float64) {
		f.NewGaugeFunc(prometheus.GaugeOpts{Namespace: "notyet", Subsystem: "dispatcher", Name: name, Help: help}, value)
	}
	gauge("send_log_bytes", "Space that the send log takes, about.", func() float64 { return float64(sent.Bytes()) })
	gauge("send_log_full", "1: the send log has no room, and nothing is sent.", func() float64 {
		if sent.Full() != nil {
			return 1
		}
		return 0
	})
	gauge("behind_partitions", "Partitions of intakes of which the database has less than the scanners have committed: it was set back, and nothing is claimed or sent.", func() float64 { return float64(copy.Behind()) })
	gauge("clock_offset_seconds", "How far the database's clock, which tasks go by, is ahead of this machine's.", func() float64 { return clock.Offset().Seconds() })
}
