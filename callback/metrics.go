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
}

// results are the label's values from the start: a rate misses the first step of a new series.
var results = []string{
	"2xx", "3xx", "4xx", "408", "425", "429", "5xx", "other",
	failedDNS, failedTLS, failedConnect, failedTimeout, failedOther, "refused", "interrupted",
}

func newMetrics(reg prometheus.Registerer) *metrics {
	f := promauto.With(reg)
	opts := func(name, help string) prometheus.Opts {
		return prometheus.Opts{Namespace: "notyet", Subsystem: "callback", Name: name, Help: help}
	}
	m := &metrics{
		requests: f.NewCounterVec(prometheus.CounterOpts(opts("requests_total", "Attempts, by what came of them and by whether their origin was answering.")), []string{"result", "circuit"}),
		seconds: f.NewHistogramVec(prometheus.HistogramOpts{Namespace: "notyet", Subsystem: "callback", Name: "seconds",
			Help: "Time of an attempt, by whether its origin was answering.", Buckets: prometheus.ExponentialBuckets(0.001, 2, 16)}, []string{"circuit"}),
	}
	for _, result := range results {
		m.requests.WithLabelValues(result, "closed")
		m.requests.WithLabelValues(result, "open")
	}
	return m
}

func (m *metrics) attempt(o Outcome, failure string, asks bool, took time.Duration) {
	circuit := "closed"
	if asks {
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
