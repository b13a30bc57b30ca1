package figures

import (
	"fmt"
	"strings"
	"testing"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/stretchr/testify/require"
)

func TestQuantile(t *testing.T) {
	beyond := make(Histogram, buckets)
	beyond[bounds] = 3
	for name, c := range map[string]struct {
		h    Histogram
		q    float64
		want float64
	}{
		"the middle of the first bucket":  {Histogram{10}, 0.5, firstBound / 2},
		"the end of a bucket":             {Histogram{10, 10}, 0.5, firstBound},
		"within a later bucket":           {Histogram{0, 0, 4}, 0.25, bound(1) + (bound(2)-bound(1))/4},
		"one of a hundred is late":        {Histogram{99, 0, 0, 1}, 0.99, firstBound},
		"more than one of a hundred are":  {Histogram{98, 0, 0, 2}, 0.99, bound(2) + (bound(3)-bound(2))/2},
		"beyond the last bound":           {beyond, 0.5, bound(bounds - 1)},
		"the whole of all, with a gap":    {Histogram{5, 0, 5, 0}, 1, bound(2)},
		"an empty bucket before the rank": {Histogram{0, 5}, 0, firstBound},
	} {
		t.Run(name, func(t *testing.T) {
			got, ok := c.h.Quantile(c.q)
			require.True(t, ok)
			require.InEpsilon(t, c.want, got, 1e-9)
		})
	}
	_, ok := Histogram{}.Quantile(0.5)
	require.False(t, ok, "of nothing there is no quantile")
}

// Quantiles of several processes are those of all their deliveries, which no mean of quantiles is.
func TestQuantilesOfSeveralProcesses(t *testing.T) {
	var total Total
	total.Add(Now{Window: 60_000, Last: Counts{N: map[string]int64{Delivered: 990}, Lateness: Histogram{990}}})
	total.Add(Now{Window: 5_000, Last: Counts{N: map[string]int64{Delivered: 10}, Lateness: Histogram{0, 0, 0, 0, 0, 0, 0, 0, 0, 10}}})
	p99, ok := total.Lateness.Quantile(0.99)
	require.True(t, ok)
	require.LessOrEqual(t, p99, firstBound)
	require.InEpsilon(t, 990.0/60+10.0/5, total.PerSecond[Delivered], 1e-9, "each over its own time: one began 5 s ago")
	require.Equal(t, 2, total.Processes)
}

func TestLevelsOfSeveralProcesses(t *testing.T) {
	var total Total
	total.Add(Now{Window: 1, Levels: map[string]int64{Claimed: 3, Unclaimed: 7, LetterBytes: 0}, Targets: []string{"b", "a"}, More: 1})
	total.Add(Now{Window: 1, Levels: map[string]int64{Claimed: 4, Unclaimed: 5, LetterBytes: 9}, Targets: []string{"b", "c"}})
	require.Equal(t, map[string]int64{Claimed: 7, Unclaimed: 7, LetterBytes: 9}, total.Levels, "what each says of the whole is not added up")
	require.Equal(t, []string{"a", "b", "c"}, total.Targets())
	require.Equal(t, 1, total.More)
}

func TestDocuments(t *testing.T) {
	full := Counts{N: map[string]int64{}, Lateness: make(Histogram, buckets)}
	for _, name := range []string{Delivered, Stored, Reports, Rejected, Exhausted, StoreErrors, FetchErrors, IndexErrors, Swept, IndexDrift, Mismatch, Reread, Failed, BadReports, MissedRuns, FailedSignIns} {
		full.N[name] = 1 << 51
	}
	for k := range full.Lateness {
		full.Lateness[k] = 1 << 51
	}
	now := Now{Window: 60_000, Last: full, Levels: map[string]int64{}}
	for _, name := range levels {
		now.Levels[name] = 1 << 51
	}
	for i := range 500 {
		now.Targets = append(now.Targets, fmt.Sprintf("%03d%s", i, strings.Repeat("x", 240)))
	}

	data := now.encode()
	require.LessOrEqual(t, len(data), MaxNow, "whatever a process has to say")
	got, ok := ParseNow(data)
	require.True(t, ok)
	require.Equal(t, now.Last, got.Last)
	require.Equal(t, now.Levels, got.Levels)
	require.NotEmpty(t, got.Targets)
	require.Equal(t, 500, len(got.Targets)+got.More, "it says how many it does not name")

	for i := range now.Targets {
		now.Targets[i] = strings.Repeat("\x01", 100) // JSON writes six characters for each
	}
	data = now.encode()
	require.LessOrEqual(t, len(data), MaxNow)
	got, ok = ParseNow(data)
	require.True(t, ok)
	require.Equal(t, 500, len(got.Targets)+got.More)

	minute := Minute{Counts: full}.encode()
	require.LessOrEqual(t, len(minute), MaxMinute)
	counts, ok := ParseMinute(minute)
	require.True(t, ok)
	require.Equal(t, full, counts.Counts)
}

// What another program has written must neither be added wrongly nor break anything.
func TestForeignDocuments(t *testing.T) {
	for _, bad := range []string{
		"", "{", "null", `{"v":2,"window_ms":1}`, `{"v":1}`, `{"v":1,"window_ms":0}`, `{"v":1,"window_ms":1,"more":-1}`,
		`{"v":1,"window_ms":1,"last":{"n":{"delivered":-1}}}`, `{"v":1,"window_ms":1,"last":{"n":{"delivered":9223372036854775807}}}`,
		`{"v":1,"window_ms":1,"last":{"lateness":[-1]}}`, `{"v":1,"window_ms":1,"last":{"lateness":[` + strings.Repeat("0,", buckets) + `0]}}`,
	} {
		_, ok := ParseNow([]byte(bad))
		require.False(t, ok, bad)
	}
	for _, bad := range []string{"", "{", `{"v":2}`, `{"v":1,"n":{"x":-1}}`, `{"v":1,"lateness":[1.5]}`} {
		_, ok := ParseMinute([]byte(bad))
		require.False(t, ok, bad)
	}
	later, ok := ParseNow([]byte(`{"v":1,"window_ms":1,"last":{"n":{"delivered":5,"not_known_yet":7},"more":{}},"else":[]}`))
	require.True(t, ok, "what a later program adds is ignored")
	require.Equal(t, int64(5), later.Last.N[Delivered])
}

func TestReadsMetrics(t *testing.T) {
	reg := prometheus.NewRegistry()
	counter := prometheus.NewCounter(prometheus.CounterOpts{Name: "notyet_dispatcher_delivered_total"})
	requests := prometheus.NewCounterVec(prometheus.CounterOpts{Name: requestsMetric}, []string{"kind"})
	halted := prometheus.NewGaugeVec(prometheus.GaugeOpts{Name: "notyet_scanner_halted_partition"}, []string{"topic", "partition"})
	standing := prometheus.NewGaugeVec(prometheus.GaugeOpts{Name: "notyet_scanner_standing_partition_seconds"}, []string{"partition"})
	late := prometheus.NewHistogram(prometheus.HistogramOpts{Name: latenessMetric, Buckets: prometheus.ExponentialBuckets(firstBound, 2, bounds)})
	dead := prometheus.NewCounterVec(prometheus.CounterOpts{Name: "notyet_scanner_dead_total"}, []string{"kind"})
	reg.MustRegister(counter, requests, halted, standing, late, dead)
	dead.WithLabelValues("dead").Add(2)
	dead.WithLabelValues("rejected").Add(1)
	counter.Add(7)
	for kind, n := range map[string]float64{"schedule": 3, "cancel": 2, "rejected": 1, "report": 4} {
		requests.WithLabelValues(kind).Add(n)
	}
	halted.WithLabelValues("in", "0").Set(1)
	halted.WithLabelValues("in", "1").Set(1)
	standing.WithLabelValues("0").Set(61.2)
	standing.WithLabelValues("1").Set(5)
	for _, seconds := range []float64{0, firstBound, firstBound * 1.5, 1e6} {
		late.Observe(seconds)
	}

	got := read(reg)
	require.Equal(t, map[string]int64{Delivered: 7, Stored: 6, Rejected: 1, Reports: 4, Failed: 2}, got.counts.N)
	require.Equal(t, map[string]int64{Halted: 2, Standing: 62}, got.levels)
	want := make(Histogram, buckets)
	want[0], want[1], want[bounds] = 2, 1, 1
	require.Equal(t, want, got.counts.Lateness)
}

// A process of a later version may have other bounds. Its lateness is not known, and nothing else.
func TestForeignBounds(t *testing.T) {
	for _, other := range [][]float64{prometheus.ExponentialBuckets(firstBound, 3, bounds), prometheus.ExponentialBuckets(firstBound, 2, bounds+1)} {
		reg := prometheus.NewRegistry()
		late := prometheus.NewHistogram(prometheus.HistogramOpts{Name: latenessMetric, Buckets: other})
		reg.MustRegister(late)
		late.Observe(1)
		require.Zero(t, read(reg).counts.Lateness.Total())
	}
}
