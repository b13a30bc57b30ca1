package ops

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	dto "github.com/prometheus/client_model/go"
	"github.com/stretchr/testify/require"
)

func TestMetricsAreGatheredOnceForAll(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		gathered := 0
		g := &gatherer{from: prometheus.GathererFunc(func() ([]*dto.MetricFamily, error) {
			gathered++
			return []*dto.MetricFamily{{}}, nil
		})}
		for range 100 {
			families, err := g.Gather()
			require.NoError(t, err)
			require.Len(t, families, 1)
		}
		require.Equal(t, 1, gathered)
		time.Sleep(gatherEvery)
		_, err := g.Gather()
		require.NoError(t, err)
		require.Equal(t, 2, gathered)
	})
}
