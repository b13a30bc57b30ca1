package bench

import (
	"encoding/binary"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/notyet/notyet/schemas"
)

func TestTallyCountsLostEarlyAndExtraCopies(t *testing.T) {
	x := (&tally{}).expect(5)
	x.arrived(0, 1000, 1000)
	x.arrived(1, 1000, 1010)
	x.arrived(1, 1000, 4000) // the second copy is not late, it is extra
	x.arrived(2, 2000, 1999)
	x.arrived(3, 1000, 1020)
	require.Equal(t, 1, x.lost())
	require.Equal(t, 1, x.early)
	require.Equal(t, 1, x.extra)
	require.Equal(t, int64(1000), x.first)
	require.Equal(t, int64(1999), x.last)
	require.Equal(t, int64(4), x.lateness.TotalCount())
	require.Equal(t, int64(20), x.lateness.Max())
	require.Equal(t, int64(0), x.lateness.Min(), "early counts as early, and as not late")
}

func TestTallyMeasuresItsWindowAndCountsAll(t *testing.T) {
	x := (&tally{from: 1000, to: 2000}).expect(4)
	x.arrived(0, 999, 1000)  // due before, came within
	x.arrived(1, 1000, 1500) // both within
	x.arrived(2, 1999, 2000) // due within, came after
	require.Equal(t, 2, x.inWindow)
	require.Equal(t, 2, x.dueIn)
	require.Equal(t, int64(2), x.lateness.TotalCount())
	require.Equal(t, 1, x.lost())
}

func TestTallyFindsTheGapAfterAKill(t *testing.T) {
	x := (&tally{from: 1000, to: 20_000, killed: 1000}).expect(5)
	x.arrived(0, 1100, 1101) // of another owner
	x.arrived(1, 1200, 5200)
	x.arrived(2, 4800, 5150)
	x.arrived(3, 2000, 5300)
	x.arrived(4, 400, 999) // late before the kill
	require.Equal(t, int64(5200), x.firstLate)
	require.Equal(t, int64(5300), x.lastLate)
}

func TestTallyReadsWhatWasSent(t *testing.T) {
	q := newRequests("target", 40, Variant{})
	x := (&tally{}).expect(3)
	for i, late := range []int64{0, 7} {
		r := q.record("in", uint64(i), 5000)
		r.Timestamp = time.UnixMilli(5000 + late)
		x.add(r)
	}
	second := q.record("in", 2, 5000)
	second.Timestamp = time.UnixMilli(99_000)
	second.Headers = schemas.AppendDelivery(nil, schemas.Delivery{ID: "x", Due: 5000, Attempt: 2, Key: "k"})
	x.add(second)
	require.Equal(t, 1, x.again, "a later attempt is neither a copy nor late")
	warm := q.record("in", warmUpIndex, 0)
	warm.Timestamp = time.UnixMilli(9000)
	x.add(warm)
	x.add(&kgo.Record{Value: []byte("a stranger's")})
	x.add(&kgo.Record{Value: binary.BigEndian.AppendUint64(make([]byte, 0, 16), 3)})
	require.Equal(t, 1, x.lost())
	require.Equal(t, int64(7), x.lateness.Max())
	require.Equal(t, int64(5007), x.last)
	require.False(t, x.byBroker)
}

func TestCourseAddsUp(t *testing.T) {
	x := (&tally{}).expect(4)
	x.arrived(0, 1000, 1010)
	x.arrived(1, 1000, 1030)
	x.arrived(2, 1000, 1250)
	require.Equal(t, []point{{0, 2, 30, 20}, {0.2, 3, 250, 250}}, x.points())
}
