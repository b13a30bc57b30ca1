package main

import (
	"fmt"
	"runtime"

	"github.com/prometheus/client_golang/prometheus"
)

// buildInfo is a metric that names the program.
func buildInfo() prometheus.Collector {
	return prometheus.NewGaugeFunc(prometheus.GaugeOpts{
		Namespace: "notyet", Name: "build_info", Help: "1; its labels name the program's version, and the Go version that made it.",
		ConstLabels: prometheus.Labels{"version": version, "goversion": runtime.Version()},
	}, func() float64 { return 1 })
}

type versionCmd struct {
	settings
	asJSON
}

// Run prints the version and the build.
func (c *versionCmd) Run(a *app) error {
	if c.JSON {
		return a.json(map[string]string{"version": version, "go": runtime.Version(), "platform": runtime.GOOS + "/" + runtime.GOARCH})
	}
	fmt.Fprintf(a.stdout, "notyet %s (%s, %s/%s)\n", version, runtime.Version(), runtime.GOOS, runtime.GOARCH)
	return nil
}
