package scanner

import (
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promauto"

	"github.com/notyet/notyet/schemas"
	"github.com/notyet/notyet/store/intake"
)

type metrics struct {
	requests     *prometheus.CounterVec
	dead         *prometheus.CounterVec
	batchTime    prometheus.Histogram
	batchSize    prometheus.Histogram
	fenced       prometheus.Counter
	storeErrors  prometheus.Counter
	fetchErrors  prometheus.Counter
	badReports   *prometheus.CounterVec
	elsewhere    *prometheus.CounterVec
	reread       prometheus.Counter
	indexDropped prometheus.Counter
	standing     *prometheus.GaugeVec
	halted       *prometheus.GaugeVec
	unclaimed    prometheus.Gauge
	unsettled    prometheus.Gauge
	oldest       prometheus.Gauge
}

func newMetrics(reg prometheus.Registerer) *metrics {
	f := promauto.With(reg)
	counter := func(name, help string) prometheus.Counter {
		return f.NewCounter(prometheus.CounterOpts{Namespace: "notyet", Subsystem: "scanner", Name: name, Help: help})
	}
	gauge := func(name, help string) prometheus.Gauge {
		return f.NewGauge(prometheus.GaugeOpts{Namespace: "notyet", Subsystem: "scanner", Name: name, Help: help})
	}
	dead := f.NewCounterVec(prometheus.CounterOpts{Namespace: "notyet", Subsystem: "scanner", Name: "dead_total",
		Help: "Dead letters of requests that were rejected, and of tasks that a consumer's report has ended, by kind."}, []string{"kind"})
	for _, kind := range []string{schemas.KindDead, schemas.KindRejected} {
		dead.WithLabelValues(kind) // there from the start: a rate misses the first step of a new series
	}
	badReports := f.NewCounterVec(prometheus.CounterOpts{Namespace: "notyet", Subsystem: "scanner", Name: "bad_reports_total",
		Help: "Reports that could not be read, by the header whose value is at fault, or by what is wrong with a header."}, []string{"reason"})
	for _, cause := range schemas.ReportCauses() {
		badReports.WithLabelValues(cause)
	}
	return &metrics{
		badReports: badReports,
		elsewhere:  f.NewCounterVec(prometheus.CounterOpts{Namespace: "notyet", Subsystem: "scanner", Name: "requests_elsewhere_total", Help: "Requests with an id in another partition than Kafka's default partitioner has for their key, by intake topic: requests about one task must come through one partitioner."}, []string{"topic"}),
		dead:       dead,
		standing:   f.NewGaugeVec(prometheus.GaugeOpts{Namespace: "notyet", Subsystem: "scanner", Name: "standing_partition_seconds", Help: "How long one batch of an intake partition has been tried, or an open transaction has hidden what is behind its start, from a minute on."}, []string{"topic", "partition"}),
		halted:     f.NewGaugeVec(prometheus.GaugeOpts{Namespace: "notyet", Subsystem: "scanner", Name: "halted_partition", Help: "1 for an intake partition that is not read any further because its log lost records that are stored."}, []string{"topic", "partition"}),
		requests:   f.NewCounterVec(prometheus.CounterOpts{Namespace: "notyet", Subsystem: "scanner", Name: "requests_total", Help: "Intake records stored, by what they were."}, []string{"kind"}),
		batchTime: f.NewHistogram(prometheus.HistogramOpts{Namespace: "notyet", Subsystem: "scanner", Name: "batch_seconds", Help: "Time to store a batch.",
			Buckets: prometheus.ExponentialBuckets(0.001, 2, 14)}),
		batchSize: f.NewHistogram(prometheus.HistogramOpts{Namespace: "notyet", Subsystem: "scanner", Name: "batch_records", Help: "Records in a batch.",
			Buckets: prometheus.ExponentialBuckets(1, 4, 8)}),
		fenced:       counter("fenced_total", "Batches refused because another scanner had stored them."),
		storeErrors:  counter("store_errors_total", "Failed calls to the database, each tried again."),
		fetchErrors:  counter("fetch_errors_total", "Partitions of the intake that could not be fetched, each counted every 5 s. A change of leader of up to 2 s does not count."),
		reread:       counter("reread_offsets_total", "Intake offsets read again because the database was set back."),
		unclaimed:    gauge("unclaimed_slots", "Slots with a task that has been due for a minute and that no dispatcher has claimed."),
		unsettled:    gauge("unsettled_slots", "Slots with a claimed task that has been due for a minute and is not settled."),
		oldest:       gauge("oldest_overdue_seconds", "How long the task that is due the longest, and not settled, has been due. 0: none is overdue."),
		indexDropped: counter("index_dropped_total", "Index updates dropped while the index was away."),
	}
}

// registerHeld shows records that are read and not stored. A lasting value takes room from others.
func (s *Scanner) registerHeld(reg prometheus.Registerer) {
	for what, value := range map[string]func() int{"queued_bytes": s.worker.queue.held, "stretches": s.parts.queued, "quota_bytes": s.worker.pacer.held} {
		promauto.With(reg).NewGaugeFunc(prometheus.GaugeOpts{Namespace: "notyet", Subsystem: "scanner", Name: "held", Help: "What is read and not stored, by what it is. 0 while there is nothing to do.", ConstLabels: prometheus.Labels{"what": what}},
			func() float64 { return float64(value()) })
	}
}

func (m *metrics) batch(b intake.Batch, took time.Duration) {
	m.batchTime.Observe(took.Seconds())
	m.batchSize.Observe(float64(len(b.Changes)))
	kinds := map[string]int{}
	for _, c := range b.Changes {
		switch {
		case c.Rejected != nil:
			kinds["rejected"]++
		case c.Report != nil:
			kinds["report"]++
		case c.Cancels != nil:
			kinds["cancel many"]++
		default:
			kinds[c.Request.Op.String()]++
		}
	}
	for kind, n := range kinds {
		m.requests.WithLabelValues(kind).Add(float64(n))
	}
}
