package dispatcher

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	dto "github.com/prometheus/client_model/go"
	"github.com/stretchr/testify/require"

	"github.com/notyet/notyet/schemas"
	"github.com/notyet/notyet/store/look"
)

// series returns what a metric shows by target; of a histogram, how many were counted.
func series(t *testing.T, reg *prometheus.Registry, name string) map[string]float64 {
	t.Helper()
	families, err := reg.Gather()
	require.NoError(t, err)
	out := map[string]float64{}
	for _, f := range families {
		if f.GetName() != "notyet_dispatcher_"+name {
			continue
		}
		for _, m := range f.GetMetric() {
			v := m.GetGauge().GetValue()
			if f.GetType() == dto.MetricType_HISTOGRAM {
				v = float64(m.GetHistogram().GetSampleCount())
			}
			out[m.GetLabel()[0].GetValue()] = v
		}
	}
	return out
}

func deliver(m *targetMetrics, topic string, n int) {
	for range n {
		m.observe(topic, 0.01)
	}
}

func TestConfiguredTargetsAreNamed(t *testing.T) {
	reg := prometheus.NewRegistry()
	m := newTargetMetrics([]string{"orders", "idle"}, 20, reg)
	deliver(m, "orders", 3)
	deliver(m, "bills", 1000)
	m.rank()
	require.Equal(t, map[string]float64{"orders": 3, "idle": 0, "other": 1000}, series(t, reg, "target_lateness_seconds"))
	require.Equal(t, map[string]Deliveries{"orders": {InTime: 3}, "bills": {InTime: 1000}}, m.take(), "figures have all")
}

func TestTargetsWithTheMostTrafficAreNamed(t *testing.T) {
	reg := prometheus.NewRegistry()
	m := newTargetMetrics(nil, 2, reg)
	late := func() map[string]float64 { return series(t, reg, "target_lateness_seconds") }
	deliver(m, "a", 10)
	deliver(m, "b", 20)
	deliver(m, "c", 15)
	require.Equal(t, map[string]float64{"a": 10, "b": 20, "other": 15}, late(), "the first ones, at once")
	m.pending.WithLabelValues("a").Set(5)
	m.rank()
	require.Equal(t, map[string]float64{"a": 10, "b": 20, "other": 15}, late(), "c has not twice as much as a")
	deliver(m, "c", 50)
	m.rank()
	require.Equal(t, map[string]float64{"b": 20, "c": 0, "other": 65}, late(), "what was counted as other stays there")
	require.Empty(t, series(t, reg, "target_pending_tasks"), "nothing is left of a target that is not named any more")
	deliver(m, "a", 1)
	require.InDelta(t, 66.0, late()["other"], 0)
	deliver(m, "c", 1)
	require.InDelta(t, 1.0, late()["c"], 0)

	m.take()
	for range 20 {
		m.rank()
	}
	require.Equal(t, map[string]float64{"other": 66}, late(), "silent targets are not named for ever")
	require.Empty(t, m.traffic)
}

// A caller can make any number of topics' names. They must cost neither series nor memory.
func TestMetricsOfAnyNumberOfTargets(t *testing.T) {
	reg := prometheus.NewRegistry()
	m := newTargetMetrics(nil, 20, reg)
	for i := range 3 * maxCandidates {
		deliver(m, fmt.Sprint("t", i), 1)
	}
	require.Len(t, m.traffic, maxCandidates)
	require.Len(t, series(t, reg, "target_lateness_seconds"), 21)
	m.take()
	for range 3 {
		m.rank()
	}
	require.Empty(t, m.traffic)
	deliver(m, "new", 1)
	require.Contains(t, series(t, reg, "target_lateness_seconds"), "new", "there is room again")
}

// Each count is taken once, by lateness. It outlives the ranking.
func TestCountsByTarget(t *testing.T) {
	m := newTargetMetrics(nil, 1, prometheus.NewRegistry())
	for _, seconds := range []float64{0, 0.999, 1, 59.9, 60, 1e6} {
		m.observe("orders", seconds)
	}
	m.died("orders")
	m.died("bills")
	for range 20 {
		m.rank()
	}
	require.Equal(t, map[string]Deliveries{"orders": {2, 2, 2, 1}, "bills": {Dead: 1}}, m.take())
	require.Empty(t, m.take())
	m.rank()
	require.Empty(t, m.traffic)
}

// A flood of one caller's names takes the place of other such names only.
func TestBusyTargetsStayInAFloodOfNames(t *testing.T) {
	m := newTargetMetrics(nil, 20, prometheus.NewRegistry())
	for i := range 60_000 {
		m.observe(fmt.Sprint("junk", i), 0)
		m.died(fmt.Sprint("dead", i))
		if i%100 == 0 && i >= 10_000 { // it begins when all room is taken
			deliver(m, "busy", 10)
		}
	}
	require.Len(t, m.traffic, maxCandidates)
	require.InDelta(t, 5000, m.take()["busy"].InTime, 50)
}

// counts is a database.
type counts struct {
	due     []look.ForecastStep
	pending map[string]look.Bounded
	oldest  map[string]int64
	others  int64
	err     error
}

func (c counts) Forecast(_ context.Context, f look.ForecastFilter) ([]look.ForecastStep, int64, error) {
	if f.Within == 0 {
		return nil, 0, errors.New("no bound")
	}
	return c.due, 0, c.err
}

func (c counts) CountPending(_ context.Context, topic string, _, most int64) (look.Bounded, error) {
	if most != pendingCounted {
		return look.Bounded{}, errors.New("no bound")
	}
	return c.pending[topic], c.err
}

func (c counts) OldestOverdue(context.Context, []string, int64, int) (map[string]int64, int64, error) {
	return c.oldest, c.others, c.err
}

func TestMeasuresWhatWaitsForTargets(t *testing.T) {
	reg := prometheus.NewRegistry()
	m := newTargetMetrics([]string{"orders", "bills"}, 20, reg)
	now := time.Now().UnixMilli()
	minute := func(n int64) int64 { return now + n*60_000 }
	err := m.measure(t.Context(), counts{
		due:     []look.ForecastStep{{At: minute(-90), Count: 1000}, {At: now, Count: 100}, {At: minute(1), Count: 10}, {At: minute(4), Count: 10}, {At: minute(5), Count: 1}},
		pending: map[string]look.Bounded{"orders": {N: 7}, "bills": {N: pendingCounted, More: true}},
		oldest:  map[string]int64{"orders": now - 9000},
		others:  now - 30_000,
	}, now)
	require.NoError(t, err)
	require.Equal(t, map[string]float64{"1m": 1100, "5m": 1120, "15m": 1121}, series(t, reg, "due_tasks"))
	require.Equal(t, map[string]float64{"orders": 7, "bills": pendingCounted}, series(t, reg, "target_pending_tasks"))
	require.Equal(t, map[string]float64{"orders": 9, "bills": 0, "other": 30}, series(t, reg, "target_oldest_overdue_seconds"))

	require.NoError(t, m.measure(t.Context(), counts{}, now))
	require.Equal(t, map[string]float64{"orders": 0, "bills": 0, "other": 0}, series(t, reg, "target_oldest_overdue_seconds"), "what was late has gone")
	require.Error(t, m.measure(t.Context(), counts{err: errors.New("away")}, now))
	m.forget()
	require.Empty(t, series(t, reg, "due_tasks"))
	require.Empty(t, series(t, reg, "target_pending_tasks"))
	require.Empty(t, series(t, reg, "target_oldest_overdue_seconds"))
}

func TestDeliveriesCountForTheirTarget(t *testing.T) {
	f := newFixture(t, 4, "orders", "bills")
	orders, bills := f.read("orders"), f.read("bills")
	d := f.start(f.elect(1), f.TempDir(), Config{Targets: []string{"orders"}})
	f.schedule(append(askMany(5, "orders", "o", time.Now(), schemas.HeaderEvents, "none"), askMany(3, "bills", "b", time.Now(), schemas.HeaderEvents, "none")...)...)
	f.eventually("all are delivered", func() bool { return orders.count() == 5 && bills.count() == 3 })
	f.eventually("all are counted", func() bool { return histogramCount(t, d.targetMetrics, "orders") == 5 })
	f.eventually("the others are counted together", func() bool { return histogramCount(t, d.targetMetrics, otherTargets) == 3 })

	f.schedule(ask("orders", "later", time.Now().Add(time.Hour)), ask("orders", "much later", time.Now().Add(2*time.Hour)), ask("bills", "soon", time.Now().Add(3*time.Minute)))
	f.eventually("the slots are owned", func() bool {
		d.measureTargets(t.Context())
		return gaugeOf(t, d.targetMetrics.pending, "orders") == 2
	})
	require.InDelta(t, 0, gaugeOf(t, d.targetMetrics.oldest, "orders"), 0)
	f.eventually("what was delivered does not count as due", func() bool {
		d.measureTargets(t.Context())
		return gaugeOf(t, d.targetMetrics.due, "1m") == 0
	})
	require.InDelta(t, 1, gaugeOf(t, d.targetMetrics.due, "5m"), 0)
	require.InDelta(t, 1, gaugeOf(t, d.targetMetrics.due, "15m"), 0)
}

func gaugeOf(t *testing.T, vec *prometheus.GaugeVec, target string) float64 {
	t.Helper()
	var got dto.Metric
	require.NoError(t, vec.WithLabelValues(target).Write(&got))
	return got.GetGauge().GetValue()
}

func histogramCount(t *testing.T, m *targetMetrics, target string) uint64 {
	t.Helper()
	var got dto.Metric
	require.NoError(t, m.lateness.WithLabelValues(target).(prometheus.Histogram).Write(&got))
	return got.GetHistogram().GetSampleCount()
}
