package bench

import (
	"encoding/binary"
	"strconv"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/notyet/notyet/schemas"
)

func TestRunsAreTalliedByMinute(t *testing.T) {
	const begin = int64(1_790_000_040_000)
	s := &runs{timers: 3, begin: begin, tally: (&tally{}).expect(3 * 2)}
	run := func(timer uint64, due int64, late time.Duration) {
		rec := &kgo.Record{Value: append(binary.BigEndian.AppendUint64(nil, timer), make([]byte, 8)...), Timestamp: time.UnixMilli(due).Add(late)}
		rec.Headers = []kgo.RecordHeader{{Key: schemas.HeaderDue, Value: strconv.AppendInt(nil, due, 10)}}
		s.add(rec)
	}
	run(0, begin-60_000, 0) // of the minute before
	for timer := range uint64(3) {
		run(timer, begin, 5*time.Millisecond)
	}
	run(1, begin+60_000, 7*time.Millisecond)
	run(1, begin+60_000, 9*time.Millisecond) // a copy
	run(2, begin+60_000, -time.Millisecond)
	run(0, begin+120_000, 0) // of the minute after
	run(warmUpIndex, begin, 0)
	require.Equal(t, []uint8{1, 1, 1, 0, 2, 1}, s.tally.copies)
	require.Equal(t, 1, s.tally.lost())
	require.Equal(t, 1, s.tally.early)
	require.Equal(t, 1, s.tally.extra)
	require.EqualValues(t, 7, s.tally.lateness.Max())
}

func TestRequestsOfTimersAreAccepted(t *testing.T) {
	q := newRequests("orders", 200, Variant{})
	q.jitter = time.Second
	for _, op := range []schemas.Op{schemas.OpTimer, schemas.OpTimerDelete} {
		rec := q.timer("notyet.requests", 7, op)
		rec.Timestamp = time.Now()
		request, err := schemas.Decode(rec, schemas.Limits{})
		require.NoError(t, err)
		require.Equal(t, op, request.Op)
		if op == schemas.OpTimer {
			require.Equal(t, time.Second, request.Timer.Jitter)
		}
	}
}
