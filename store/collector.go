package store

import (
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
)

// Collector returns the metrics of the connections to the database: go_sql_*.
func (s *Store) Collector() prometheus.Collector {
	return collectors.NewDBStatsCollector(s.db, "notyet")
}
