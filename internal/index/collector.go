package index

import (
	"github.com/prometheus/client_golang/prometheus"
	"github.com/redis/go-redis/v9"
)

// Collector returns the metrics of the connections to Redis.
func (x *Index) Collector() prometheus.Collector { return &collector{x.rdb} }

type collector struct{ rdb redis.UniversalClient }

func poolDesc(name, help string) *prometheus.Desc {
	return prometheus.NewDesc("notyet_index_pool_"+name, help, nil, nil)
}

var (
	poolHits     = poolDesc("hits_total", "Calls to Redis that found a free connection.")
	poolMisses   = poolDesc("misses_total", "Calls to Redis that found none.")
	poolTimeouts = poolDesc("timeouts_total", "Calls to Redis that waited for a connection in vain.")
	poolStale    = poolDesc("stale_total", "Connections to Redis that were closed because they were unusable.")
	poolConns    = poolDesc("connections", "Connections to Redis.")
	poolIdle     = poolDesc("idle_connections", "Connections to Redis that nobody uses.")
)

// Describe is part of prometheus.Collector.
func (c *collector) Describe(to chan<- *prometheus.Desc) {
	for _, d := range []*prometheus.Desc{poolHits, poolMisses, poolTimeouts, poolStale, poolConns, poolIdle} {
		to <- d
	}
}

// Collect is part of prometheus.Collector. No server is asked.
func (c *collector) Collect(to chan<- prometheus.Metric) {
	s := c.rdb.PoolStats()
	for desc, n := range map[*prometheus.Desc]uint32{poolHits: s.Hits, poolMisses: s.Misses, poolTimeouts: s.Timeouts, poolStale: s.StaleConns} {
		to <- prometheus.MustNewConstMetric(desc, prometheus.CounterValue, float64(n))
	}
	for desc, n := range map[*prometheus.Desc]uint32{poolConns: s.TotalConns, poolIdle: s.IdleConns} {
		to <- prometheus.MustNewConstMetric(desc, prometheus.GaugeValue, float64(n))
	}
}
