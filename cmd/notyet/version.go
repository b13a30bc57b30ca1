package main

import (
	"runtime"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/notyet/notyet/cmd/internal/command"
)

// buildInfo is a metric that names the program.
func buildInfo() prometheus.Collector {
	return prometheus.NewGaugeFunc(prometheus.GaugeOpts{
		Namespace: "notyet", Name: "build_info", Help: "1; its labels name the program's version, and the Go version that made it.",
		ConstLabels: prometheus.Labels{"version": command.Version(), "goversion": runtime.Version()},
	}, func() float64 { return 1 })
}
