package index_test

import (
	"testing"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/stretchr/testify/require"

	"github.com/notyet/notyet/internal/index"
)

func TestPoolMetrics(t *testing.T) {
	onEveryServer(t, func(t *testing.T, x *index.Index, _ *server, _ string) {
		for range 2 {
			require.NoError(t, x.SetMark(t.Context(), 1, base)) // of one slot, so on one server
		}
		reg := prometheus.NewRegistry()
		require.NoError(t, reg.Register(x.Collector()))
		families, err := reg.Gather()
		require.NoError(t, err)
		got := map[string]float64{}
		for _, f := range families {
			m := f.GetMetric()[0]
			got[f.GetName()] = m.GetCounter().GetValue() + m.GetGauge().GetValue()
		}
		require.Len(t, got, 6)
		require.Positive(t, got["notyet_index_pool_connections"])
		require.Positive(t, got["notyet_index_pool_hits_total"], "the second call found the first one's connection")
	})
}
