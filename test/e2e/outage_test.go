package e2e

import (
	"context"
	"math"
	"runtime"
	"strconv"
	"testing"
	"time"

	"github.com/HdrHistogram/hdrhistogram-go"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/notyet/notyet/schemas"
	"github.com/notyet/notyet/store/intake"
	"github.com/notyet/notyet/store/line"
	"github.com/notyet/notyet/test/recordtest"
)

// TestReturnAfterAnOutage makes tasks due while no dispatcher runs. Then it delivers them together
// with fresh tasks of another topic. NOTYET_CLUSTER_TASKS sets how many; published figures use
// 2000000.
func TestReturnAfterAnOutage(t *testing.T) {
	onStacks(t, func(t *testing.T, s *stack) {
		missed := clusterTasks(t, 20_000)
		const rate = 100
		fresh := rate * (3 + missed/8000)
		late, other := s.name+".late", s.name+".other"
		s.judging(4, late, other)
		s.scanner()
		for i := range missed {
			r := request(s.intake, late, schemas.HeaderDelay, "1ms")
			s.client.Produce(context.Background(), keyed(r, strconv.Itoa(i), "missed"), nil)
		}
		require.NoError(t, s.client.Flush(t.Context()))
		s.waitStored(missed)

		begin := time.Now().Add(time.Second)
		for i := range fresh {
			at := begin.Add(time.Duration(i) * time.Second / rate).UnixMilli()
			r := request(s.intake, other, schemas.HeaderAt, strconv.FormatInt(at, 10))
			s.client.Produce(context.Background(), keyed(r, strconv.Itoa(i), "fresh"), nil)
		}
		require.NoError(t, s.client.Flush(t.Context()))
		s.dispatcher("one")

		histogram := func() *hdrhistogram.Histogram { return hdrhistogram.New(1, 3_600_000, 3) }
		beside, after := histogram(), histogram()
		var drained, first time.Time
		var heap uint64
		var arrivals []*kgo.Record
		n := 0
		s.read(s.reader([]string{late, other}), 2*time.Minute+time.Duration(missed)*time.Millisecond, func(r *kgo.Record) bool {
			if n++; n%1000 == 0 {
				var m runtime.MemStats
				runtime.ReadMemStats(&m)
				heap = max(heap, m.HeapAlloc)
			}
			if r.Topic == other {
				arrivals = append(arrivals, r)
			} else {
				if first.IsZero() || r.Timestamp.Before(first) {
					first = r.Timestamp
				}
				if r.Timestamp.After(drained) {
					drained = r.Timestamp
				}
			}
			return n == missed+fresh
		})
		for _, r := range arrivals {
			due, err := strconv.ParseInt(recordtest.Header(r, schemas.HeaderDue), 10, 64)
			require.NoError(t, err)
			require.GreaterOrEqual(t, r.Timestamp.UnixMilli(), due, "early")
			h := after
			if due < drained.UnixMilli() {
				h = beside
			}
			require.NoError(t, h.RecordValue(r.Timestamp.UnixMilli()-due))
		}
		span := drained.Sub(first)
		t.Logf("%d missed, drained in %v (%.0f/s); %d/s of another topic: beside it lateness ms p50 %d p99 %d max %d (%d tasks), after it p50 %d p99 %d max %d (%d tasks); heap of everything in this process at most %d MB",
			missed, span.Round(time.Millisecond), float64(missed)/span.Seconds(), rate, beside.ValueAtQuantile(50), beside.ValueAtQuantile(99), beside.Max(), beside.TotalCount(),
			after.ValueAtQuantile(50), after.ValueAtQuantile(99), after.Max(), after.TotalCount(), heap>>20)
	})
}

// waitStored waits until so many tasks are pending.
func (s *stack) waitStored(n int) {
	s.t.Helper()
	require.EventuallyWithT(s.t, func(t *assert.CollectT) {
		stored := 0
		for _, d := range s.databases() {
			slots, err := d.store.Slots(s.t.Context())
			require.NoError(t, err)
			ranges := make([]line.Range, len(slots))
			for i, slot := range slots {
				ranges[i] = line.Range{Slot: slot.Slot, From: slot.Done, To: math.MaxInt64}
			}
			counts, err := intake.New(d.store).Line().Count(s.t.Context(), ranges)
			require.NoError(t, err)
			for _, c := range counts {
				stored += c
			}
		}
		require.GreaterOrEqual(t, stored, n)
	}, time.Minute+time.Duration(n)*time.Millisecond, 200*time.Millisecond)
}
