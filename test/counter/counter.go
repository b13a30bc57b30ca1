// Package counter reads counters and gauges, for tests: one goes in, its value comes out.
package counter

import (
	"github.com/prometheus/client_golang/prometheus"
	dto "github.com/prometheus/client_model/go"
)

// Value returns how much a counter has counted, or what a gauge shows.
func Value(c prometheus.Counter) int {
	var m dto.Metric
	if err := c.Write(&m); err != nil {
		panic(err)
	}
	return int(m.GetCounter().GetValue() + m.GetGauge().GetValue())
}
