package scanner

import (
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/stretchr/testify/require"
	"go.uber.org/zap"

	"github.com/notyet/notyet/internal/index"
	"github.com/notyet/notyet/store"
	"github.com/notyet/notyet/store/intake"
	"github.com/notyet/notyet/test/memindex"
)

// An index that does not answer must not hold a worker, however much is stored meanwhile.
func TestAnIndexThatDoesNotAnswerHoldsNobody(t *testing.T) {
	x := newIndexer(nil, nil, time.Hour, newMetrics(prometheus.NewRegistry()), zap.NewNop())
	for range cap(x.waiting) + 3 {
		x.put(intake.Applied{Added: make([]store.Place, 2)})
	}
	require.Equal(t, 6, counted(x.metrics.indexDropped))
}

// TestASetTimerWakesItsDispatcher: and so does a task of its slot that is due soon.
func TestASetTimerWakesItsDispatcher(t *testing.T) {
	ix := memindex.New()
	wakes := ix.Wakes(t.Context())
	x := newIndexer(ix, new(store.Store).Clock(), time.Hour, newMetrics(prometheus.NewRegistry()), zap.NewNop())
	now := x.clock.Millis()
	x.put(intake.Applied{Timers: []int{3}, Added: []store.Place{{Place: index.Entry{Slot: 3, Pos: now, Seq: 1}, Due: now}}})
	require.NoError(t, x.update(t.Context(), <-x.waiting))
	require.Equal(t, []index.SlotPos{{Slot: 3, Pos: index.TimersChanged}, {Slot: 3, Pos: now}}, <-wakes, "neither hides the other")
}
