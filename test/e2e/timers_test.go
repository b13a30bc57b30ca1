package e2e

import (
	"fmt"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/notyet/notyet/schemas"
	"github.com/notyet/notyet/test/recordtest"
)

// TestTimersSurviveTheirDispatchers: a timer of every second, while dispatchers come and go; every second has its one run, none
// is early, and after the answer to a disable nothing comes that was not claimed.
func TestTimersSurviveTheirDispatchers(t *testing.T) {
	onStacks(t, func(t *testing.T, s *stack) {
		target := s.name + ".orders"
		s.judging(1, target)
		s.scanner()
		first := s.dispatcher("one")
		op, id := schemas.HeaderOp, schemas.HeaderID
		s.publish(
			keyed(request(s.intake, target, id, "t", op, "timer", schemas.HeaderCron, "* * * * * *"), "k", "run"),
			keyed(request(s.intake, target, id, "nothing", op, "timer", schemas.HeaderCron, "0 0 30 2 *"), "k", ""),
			keyed(request(s.intake, target, id, "unknown", op, "timer-delete"), "k", ""),
		)
		got := s.answers(map[string]schemas.State{"t": schemas.StateTimerSet, "nothing": schemas.StateRejected, "unknown": schemas.StateNotFound})
		begin := got["t"].Due
		require.Zero(t, begin%1000)
		require.Contains(t, got["nothing"].Reason, "never comes")

		runs := map[int64]int{}
		last := int64(0)
		collect := func(until int64) func(*kgo.Record) bool {
			return func(r *kgo.Record) bool {
				due, err := strconv.ParseInt(recordtest.Header(r, schemas.HeaderDue), 10, 64)
				require.NoError(t, err)
				require.Equal(t, fmt.Sprintf("t@%d", due), recordtest.Header(r, schemas.HeaderID))
				require.Equal(t, "t", recordtest.Header(r, schemas.HeaderTimer))
				require.Equal(t, "run", string(r.Value))
				require.GreaterOrEqual(t, r.Timestamp.UnixMilli(), due, "early")
				runs[due]++
				last = max(last, due)
				return due >= until
			}
		}
		reader := s.reader([]string{target})
		s.read(reader, time.Minute, collect(begin+3000))
		first.shutdown(t) // embedded, dispatchers do not know of each other: the second would take the slots by force
		s.dispatcher("two")
		s.read(reader, time.Minute, collect(last+5000))

		s.publish(keyed(request(s.intake, target, id, "t", op, "timer-disable"), "k", ""))
		disabled := s.answers(map[string]schemas.State{"t": schemas.StateTimerDisabled})["t"].At
		s.publish(keyed(request(s.intake, target, id, "end", schemas.HeaderDelay, "6s"), "k", "end"))
		s.read(reader, time.Minute, func(r *kgo.Record) bool {
			return recordtest.Header(r, id) == "end" || strings.HasPrefix(recordtest.Header(r, id), "t@") && collect(0)(r) && false
		})
		require.Less(t, last, disabled+4000, "what was claimed by then may come, a look-ahead further at most")
		for due := begin; due <= last; due += 1000 {
			require.Equal(t, 1, runs[due], "the run of %d s", (due-begin)/1000)
		}
		require.Len(t, runs, int(last-begin)/1000+1)
	})
}
