package figures

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
)

func fullMinute(names map[string]Deliveries) Minute {
	full := Counts{N: map[string]int64{}, Lateness: make(Histogram, buckets)}
	for _, name := range []string{Delivered, Stored, Reports, Rejected, Exhausted, StoreErrors, FetchErrors, IndexErrors, Swept, Reread, Failed} {
		full.N[name] = 123_456
	}
	for k := range full.Lateness {
		full.Lateness[k] = 12_345
	}
	return Minute{full, names}
}

// The busiest come first, and the sickest have their own room: neither hides the other.
func TestAMinuteHasTheBusiestAndTheSickest(t *testing.T) {
	names := map[string]Deliveries{}
	for i := range 100 {
		names[fmt.Sprintf("team.orders.busy-%02d", i)] = Deliveries{InTime: int64(10_000 + i)}
		names[fmt.Sprintf("team.orders.sick-%02d", i)] = Deliveries{Late: int64(i), Dead: int64(i)}
	}
	got, ok := ParseMinute(fullMinute(names).encode())
	require.True(t, ok)
	require.Len(t, got.Targets, 2*MaxTargets, "ordinary names have room")
	for i := 90; i < 100; i++ {
		for _, kind := range []string{"busy", "sick"} {
			name := fmt.Sprintf("team.orders.%s-%02d", kind, i)
			require.Equal(t, names[name], got.Targets[name])
		}
	}
	require.Equal(t, []string{"team.orders.busy-99", "team.orders.busy-98"}, Busiest(got.Targets, 2))
	require.Equal(t, []string{"team.orders.sick-99", "team.orders.sick-98"}, Sickest(got.Targets, 2))
}

// Any caller makes any number of names. None of them makes a document larger, or hides the busiest.
func TestNamesOfOneCallerAreBounded(t *testing.T) {
	for _, fill := range []string{"x", "\x01", "<"} { // JSON writes six characters for each of the latter
		names := map[string]Deliveries{"orders": {InTime: 10}, "bills": {Late: 5}}
		for i := range 60_000 {
			names[fmt.Sprintf("%05d%s", i, strings.Repeat(fill, 244))] = Deliveries{Dead: 2}
		}
		data := fullMinute(names).encode()
		require.LessOrEqual(t, len(data), MaxMinute)
		got, ok := ParseMinute(data)
		require.True(t, ok)
		require.Equal(t, names["orders"], got.Targets["orders"])
		require.Equal(t, names["bills"], got.Targets["bills"])
		require.Equal(t, fullMinute(nil).Counts, got.Counts)
	}
	var sum Minute
	for p := range 100 {
		names := map[string]Deliveries{"orders": {InTime: 5}, "bills": {Late: 5}}
		for i := range 18 {
			names[fmt.Sprintf("junk-%d-%d", p, i)] = Deliveries{InTime: 2, Dead: 2}
		}
		sum = sum.Plus(Minute{Targets: names})
	}
	require.LessOrEqual(t, len(sum.Targets), 20*MaxTargets)
	require.Equal(t, Deliveries{InTime: 500}, sum.Targets["orders"])
	require.Equal(t, Deliveries{Late: 500}, sum.Targets["bills"])
}

// Processes of the version before write no targets, and read a document that has some.
func TestDocumentsOfTwoVersionsByTarget(t *testing.T) {
	old, ok := ParseMinute([]byte(`{"v":1,"n":{"delivered":60},"lateness":[60]}`))
	require.True(t, ok)
	require.Empty(t, old.Targets)
	later, ok := ParseMinute([]byte(`{"v":1,"n":{"delivered":5},"targets":[{"t":"orders","n":[1,2,3,4,5],"more":{}},{"t":"bills","n":[7]}]}`))
	require.True(t, ok, "unknown fields are ignored")
	require.Equal(t, map[string]Deliveries{"orders": {1, 2, 3, 4}, "bills": {InTime: 7}}, later.Targets)
	sum := old.Plus(later).Plus(later)
	require.Equal(t, Deliveries{2, 4, 6, 8}, sum.Targets["orders"])
	require.Equal(t, int64(70), sum.N[Delivered])
	for _, bad := range []string{`[{"t":"orders","n":[-1]}]`, `[{"t":"orders","n":[9223372036854775807]}]`, `[{"t":"orders","n":{}}]`} {
		_, ok := ParseMinute([]byte(`{"v":1,"targets":` + bad + `}`))
		require.False(t, ok, bad)
	}
}

// The counts are taken once for each minute with work.
func TestRecordsByTarget(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFixture(t, nil)
		taken := int64(0)
		f.minutes.take = func() map[string]Deliveries {
			taken++
			return map[string]Deliveries{"orders": {InTime: taken}}
		}
		m, save, got := first(), f.cfg.Save, map[int64]int64{}
		f.cfg.Save = func(ctx context.Context, minute int64, data []byte) error {
			figures, _ := ParseMinute(data)
			got[minute] = figures.Targets["orders"].InTime
			return save(ctx, minute, data)
		}
		f.start(t)
		f.delivered.Inc()
		wait(3 * time.Minute)
		f.delivered.Inc()
		f.stop()
		require.Equal(t, map[int64]int64{m: 1, m + 3: 2}, got)
	})
}
