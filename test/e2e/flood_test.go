package e2e

import (
	"context"
	"fmt"
	"strconv"
	"testing"
	"time"

	"github.com/HdrHistogram/hdrhistogram-go"
	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/notyet/notyet/schemas"
	"github.com/notyet/notyet/test/recordtest"
)

// TestFloodDelaysOnlyItself makes many tasks of one topic due at once, together with a steady
// trickle to another topic. It reports the trickle's lateness with and without the flood.
// NOTYET_CLUSTER_TASKS sets the size of the flood.
func TestFloodDelaysOnlyItself(t *testing.T) {
	onStacks(t, func(t *testing.T, s *stack) {
		flood := clusterTasks(t, 2000)
		const rate, seconds = 100, 4
		s.scanner()
		s.dispatcher("one")
		quiet, loud := s.name+".quiet", s.name+".loud"
		s.judging(4, quiet, loud)
		head := 3*time.Second + time.Duration(flood)*50*time.Microsecond
		trickle := func(phase string) *hdrhistogram.Histogram {
			begin := time.Now().Add(head)
			if phase == "flood" {
				at := strconv.FormatInt(begin.Add(time.Second).UnixMilli(), 10)
				for i := range flood {
					s.client.Produce(context.Background(), keyed(request(s.intake, loud, schemas.HeaderAt, at), strconv.Itoa(i), fmt.Sprintf("%0200d", i)), nil)
				}
			}
			for i := range rate * seconds {
				due := begin.Add(time.Duration(i) * time.Second / rate).UnixMilli()
				s.client.Produce(context.Background(), keyed(request(s.intake, quiet, schemas.HeaderAt, strconv.FormatInt(due, 10), "phase", phase), strconv.Itoa(i), phase), nil)
			}
			require.NoError(t, s.client.Flush(t.Context()))
			late := hdrhistogram.New(1, 600_000, 3)
			n := 0
			s.read(s.reader([]string{quiet}), head+seconds*time.Second+60*time.Second, func(r *kgo.Record) bool {
				if recordtest.Header(r, "phase") == phase {
					due, err := strconv.ParseInt(recordtest.Header(r, schemas.HeaderDue), 10, 64)
					require.NoError(t, err)
					require.GreaterOrEqual(t, r.Timestamp.UnixMilli(), due)
					require.NoError(t, late.RecordValue(r.Timestamp.UnixMilli()-due))
					n++
				}
				return n == rate*seconds
			})
			return late
		}
		for _, phase := range []string{"alone", "flood"} {
			h := trickle(phase)
			t.Logf("%s (%d at one instant): %d/s on another topic, lateness ms p50 %d p99 %d max %d", phase, flood, rate, h.ValueAtQuantile(50), h.ValueAtQuantile(99), h.Max())
		}
		n := 0
		s.read(s.reader([]string{loud}), 120*time.Second, func(*kgo.Record) bool { n++; return n == flood })
	})
}
