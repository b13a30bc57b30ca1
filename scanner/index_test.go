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

// What is due beyond the window is not there, and is not asked for: of many that are cancelled, that would be half the cost.
func TestOnlyWhatTheIndexHoldsIsRemoved(t *testing.T) {
	ix := memindex.New()
	x := newIndexer(ix, new(store.Store).Clock(), time.Hour, newMetrics(prometheus.NewRegistry()), zap.NewNop())
	now := x.clock.Millis()
	at := func(seq int64, later time.Duration) store.Place {
		return store.Place{Place: index.Entry{Slot: 3, Pos: now + later.Milliseconds(), Seq: seq}}
	}
	all := []store.Place{at(1, time.Minute), at(2, time.Hour+clocks/2), at(3, 2*time.Hour)}
	for _, p := range all {
		require.NoError(t, ix.Add(t.Context(), []index.Entry{p.Place}))
	}
	require.NoError(t, x.update(t.Context(), intake.Applied{Removed: all}))
	left, err := ix.Members(t.Context(), 3)
	require.NoError(t, err)
	require.Equal(t, []index.Entry{all[2].Place}, left)
}
