package events

import (
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promauto"
)

type metrics struct {
	errors, leftovers, deferred prometheus.Counter
	waiting                     prometheus.Gauge
}

func newMetrics(reg prometheus.Registerer, p *Publisher) *metrics {
	f := promauto.With(reg)
	counter := func(name, help string) prometheus.Counter {
		return f.NewCounter(prometheus.CounterOpts{Namespace: "notyet", Subsystem: p.cfg.Stage, Name: name, Help: help})
	}
	f.NewGaugeFunc(prometheus.GaugeOpts{Namespace: "notyet", Subsystem: p.cfg.Stage, Name: "results_unanswered_seconds",
		Help: "How long the results topic has acknowledged nothing of what was sent; 0: nothing waits for it."}, func() float64 { return p.Unanswered().Seconds() })
	f.NewGaugeFunc(prometheus.GaugeOpts{Namespace: "notyet", Subsystem: p.cfg.Stage, Name: "unacknowledged_events_bytes",
		Help: "Memory of events that were sent and that the results topic has not acknowledged."}, func() float64 { p.mu.Lock(); defer p.mu.Unlock(); return float64(p.bytes) })
	return &metrics{
		errors:    counter("event_errors_total", "Events that could not be sent. Each is tried again, unless the results topic refuses it alone."),
		leftovers: counter("leftover_events_total", "Runs of stored events that were published later, by whoever found them."),
		deferred:  counter("deferred_events_total", "Runs of stored events that found no room on their way to the results topic, and wait in the database."),
		waiting: f.NewGauge(prometheus.GaugeOpts{Namespace: "notyet", Subsystem: p.cfg.Stage, Name: "outbox_runs",
			Help: "Runs of stored events that were not published at the last look, at most 10,000."}),
	}
}
