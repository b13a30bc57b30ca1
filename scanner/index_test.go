package scanner

import (
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/stretchr/testify/require"
	"go.uber.org/zap"

	"github.com/notyet/notyet/store"
)

// An index that does not answer must not hold a worker, however much is stored meanwhile.
func TestAnIndexThatDoesNotAnswerHoldsNobody(t *testing.T) {
	x := newIndexer(nil, nil, time.Hour, newMetrics(prometheus.NewRegistry()), zap.NewNop())
	for range cap(x.waiting) + 3 {
		x.put(store.Applied{Added: make([]store.Place, 2)})
	}
	require.Equal(t, 6, counted(x.metrics.indexDropped))
}
