package dispatcher

import (
	"fmt"
	"testing"

	"github.com/prometheus/client_golang/prometheus"
)

// BenchmarkObserve is what a delivery costs in the figures by target: of few, and of more targets
// than have room.
func BenchmarkObserve(b *testing.B) {
	for _, targets := range []int{1, 100, 10_000} {
		b.Run(fmt.Sprint(targets), func(b *testing.B) {
			m := newTargetMetrics(nil, 20, prometheus.NewRegistry())
			names := make([]string, targets)
			for i := range names {
				names[i] = fmt.Sprint("team.orders.", i)
			}
			for i := 0; b.Loop(); i++ {
				m.observe(names[i%targets], 0.01)
			}
		})
	}
}
