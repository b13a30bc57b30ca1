package callback

import (
	"strconv"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promauto"
)

// metrics have no label of unbounded values: an origin is never one.
type metrics struct {
	requests *prometheus.CounterVec   // result, circuit
	seconds  *prometheus.HistogramVec // circuit
	notSent  *prometheus.CounterVec   // why
	circuits prometheus.Counter
}

// results are the label's values from the start: a rate misses the first step of a new series.
var results = []string{
	"2xx", "3xx", "4xx", "408", "425", "429", "5xx", "other",
	failedDNS, failedTLS, failedConnect, failedTimeout, failedOther, "refused", "interrupted",
}

func newMetrics(reg prometheus.Registerer, r *room) *metrics {
	f := promauto.With(reg)
	opts := func(name, help string) prometheus.Opts {
		return prometheus.Opts{Namespace: "notyet", Subsystem: "callback", Name: name, Help: help}
	}
	gauge := func(name, help string, value func() int) {
		f.NewGaugeFunc(prometheus.GaugeOpts(opts(name, help)), func() float64 { return float64(value()) })
	}
	gauge("in_flight", "Requests that are under way.", func() int { n, _, _ := r.counts(); return n })
	gauge("slow_in_flight", "Of them, those that are slow: to origins not known to answer, or for longer than a second.", func() int { r.mu.Lock(); defer r.mu.Unlock(); return r.seats.Slow() })
	gauge("busy_origins", "Origins with requests under way.", r.busy)
	gauge("origins", "Origins that are known.", func() int { _, n, _ := r.counts(); return n })
	gauge("open_circuits", "Origins that do not answer, and are asked one request at a time.", func() int { _, _, n := r.counts(); return n })
	m := &metrics{
		requests: f.NewCounterVec(prometheus.CounterOpts(opts("requests_total", "Attempts, by what came of them and by whether their origin was answering.")), []string{"result", "circuit"}),
		notSent:  f.NewCounterVec(prometheus.CounterOpts(opts("not_sent_total", "Requests that were put off without an attempt.")), []string{"why"}),
		circuits: f.NewCounter(prometheus.CounterOpts(opts("circuits_opened_total", "Origins that stopped answering."))),
		seconds: f.NewHistogramVec(prometheus.HistogramOpts{Namespace: "notyet", Subsystem: "callback", Name: "seconds",
			Help: "Time of an attempt, by whether its origin was answering.", Buckets: prometheus.ExponentialBuckets(0.001, 2, 16)}, []string{"circuit"}),
	}
	for _, result := range results {
		m.requests.WithLabelValues(result, "closed")
		m.requests.WithLabelValues(result, "open")
	}
	for _, why := range []string{whyFull, whyOrigin, whyCircuit} {
		m.notSent.WithLabelValues(why)
	}
	return m
}

func (m *metrics) attempt(o Outcome, failure string, probe bool, took time.Duration) {
	circuit := "closed"
	if probe {
		circuit = "open"
	}
	m.requests.WithLabelValues(result(o, failure), circuit).Inc()
	m.seconds.WithLabelValues(circuit).Observe(took.Seconds())
}

func result(o Outcome, failure string) string {
	switch {
	case o.Verdict == Interrupted:
		return "interrupted"
	case failure != "":
		return failure
	case o.Status == 408, o.Status == 425, o.Status == 429:
		return strconv.Itoa(o.Status)
	case o.Status >= 200 && o.Status < 600:
		return strconv.Itoa(o.Status/100) + "xx"
	}
	return "other"
}
