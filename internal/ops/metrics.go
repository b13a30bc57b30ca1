package ops

import (
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	dto "github.com/prometheus/client_model/go"
)

// gatherEvery is how long metrics are shown again. Anybody may ask, and a gathering is memory that
// whoever reads slowly keeps: up to a megabyte where each of many targets has its metrics.
const gatherEvery = time.Second

// gatherer gathers once for all who ask within gatherEvery.
type gatherer struct {
	from prometheus.Gatherer

	mu       sync.Mutex // guards the rest
	at       time.Time
	families []*dto.MetricFamily
	err      error
}

// Gather implements prometheus.Gatherer. Nobody may change what it returns.
func (g *gatherer) Gather() ([]*dto.MetricFamily, error) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.at.IsZero() || time.Since(g.at) >= gatherEvery {
		g.families, g.err = g.from.Gather()
		g.at = time.Now()
	}
	return g.families, g.err
}
