package store

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/notyet/notyet/schemas"
)

// A schedule for a task that is being delivered is neither lost nor overtaken by the delivery: it waits.
func TestScheduleWhileInFlight(t *testing.T) {
	each(t, func(t *testing.T, s *fixture) {
		s.do(s.schedule("a", version(1)))
		s.claim(t0 + 1000)
		first := s.row("a")
		require.Empty(t, s.do(s.schedule("a", version(2), value("new"), in(5000*ms))), "answered when it takes effect")
		require.Equal(t, 1, s.last.Waiting)
		require.Equal(t, first, s.row("a"), "the delivery goes on with what was claimed")
		require.Nil(t, s.resolve(), "not before the task has ended")

		s.settle(t0 + 1000)
		require.Equal(t, []schemas.State{schemas.StateScheduled}, s.resolve())
		require.Zero(t, s.last.Waiting)
		require.Equal(t, "new", string(s.body("a").Value))
		require.EqualValues(t, t0+5000, s.row("a").Due)
		require.Equal(t, []Place{s.place("a")}, s.last.Added)
		require.Zero(t, s.count("waiting"))
		require.Nil(t, s.resolve(), "once")
	})
}

// Whoever next asks something of the task finds the waiting requests, and stands behind them.
func TestRequestsBehindWaitingOnes(t *testing.T) {
	each(t, func(t *testing.T, s *fixture) {
		s.do(s.schedule("a"))
		s.claim(t0 + 1000)
		require.Empty(t, s.do(s.schedule("a", value("1"))))
		require.Empty(t, s.do(s.schedule("a", value("2"), keep), s.schedule("a", value("3"))))
		require.Empty(t, s.do(s.cancel("a")), "it is about the waiting one: too_late would be a lie")
		require.Empty(t, s.do(s.schedule("a", value("4"), version(3))))
		require.Empty(t, s.do(s.fire("a"), s.schedule("a", value("5"), version(2))))
		require.Equal(t, 7, s.count("waiting"))

		s.settle(t0 + 1000)
		events := s.do(s.schedule("a", value("6"), version(4)))
		var states []schemas.State
		for _, e := range events {
			states = append(states, e.State)
		}
		require.Equal(t, []schemas.State{schemas.StateScheduled, schemas.StateKept, schemas.StateScheduled, schemas.StateCancelled,
			schemas.StateScheduled, schemas.StateFired, schemas.StateStale, schemas.StateScheduled}, states, "in the order in which they came")
		require.Equal(t, "6", string(s.body("a").Value))
		require.Zero(t, s.count("waiting"))
	})
}

// A waiting request waits on while the task is between attempts.
func TestWaitingThroughAttempts(t *testing.T) {
	each(t, func(t *testing.T, s *fixture) {
		s.do(s.schedule("a", wantReport))
		s.claim(t0 + 1000)
		require.Empty(t, s.do(s.schedule("a", value("new"))))
		s.settle(t0+1000, s.exit("a", StateReport, t0+61_000, 1))
		require.Nil(t, s.resolve())
		require.Empty(t, s.do(s.schedule("a", value("newer"))))
		require.Equal(t, schemas.StateRetrying, s.answer(says("a", 1, schemas.StatusRetry)), "a report is about the delivery: it does not queue")
		require.Equal(t, 2, s.count("waiting"))
		require.Nil(t, s.resolve())

		s.awaitReport("a", 2)
		require.Equal(t, 2, s.count("waiting"))
		events := s.do(says("a", 2, schemas.StatusOK))
		require.Equal(t, schemas.StateSucceeded, events[0].State)
		require.Equal(t, []schemas.State{schemas.StateScheduled, schemas.StateScheduled}, s.resolve())
		require.Equal(t, "newer", string(s.body("a").Value))
	})
}

// A report may come before the outcome of its own delivery is stored.
func TestReportWhileInFlight(t *testing.T) {
	each(t, func(t *testing.T, s *fixture) {
		s.do(s.schedule("a", wantReport), s.schedule("b", wantReport), s.schedule("c"))
		s.claim(t0 + 1000)
		require.Empty(t, s.do(says("a", 1, schemas.StatusOK), says("b", 1, schemas.StatusFail), says("c", 1, schemas.StatusFail), says("a", 7, schemas.StatusFail)))
		require.Equal(t, 2, s.count("waiting"), "neither of a task that asks for none, nor of an attempt that cannot be")
		require.Nil(t, s.resolve())
		s.settle(t0+1000, s.exit("a", StateReport, t0+61_000, 1), s.exit("b", StateReport, t0+61_000, 1))
		require.ElementsMatch(t, []schemas.State{schemas.StateSucceeded, schemas.StateDead}, s.resolve())
		require.Equal(t, "succeeded", s.state("a"))
		require.Equal(t, "dead", s.state("b"))
		require.Equal(t, "delivered", s.state("c"))
	})
}

// The owner may put a task back into the line, because its target is out of order. What waits for it must then neither be
// forgotten nor be overtaken by what comes later.
func TestWaitingForATaskThatWasPutBack(t *testing.T) {
	for _, resolved := range []bool{true, false} {
		each(t, func(t *testing.T, s *fixture) {
			s.do(s.schedule("a"))
			s.claim(t0 + 1000)
			s.do(s.schedule("a", value("second")))
			s.settle(t0+1000, s.exit("a", StateLine, t0+9000, 0))
			require.Equal(t, "pending", s.state("a"))
			if resolved {
				require.Equal(t, []schemas.State{schemas.StateScheduled}, s.resolve())
				require.Equal(t, "second", string(s.body("a").Value))
			}
			s.do(s.schedule("a", value("third")))
			require.Nil(t, s.resolve())
			require.Equal(t, "third", string(s.body("a").Value))
			require.Zero(t, s.count("waiting"))
		})
	}
}

// A task may be retired while something waits for it: that is decided as for an unknown id.
func TestWaitingForARetiredTask(t *testing.T) {
	each(t, func(t *testing.T, s *fixture) {
		s.do(s.schedule("a"), s.schedule("b"))
		s.claim(t0 + 1000)
		s.do(s.schedule("a", value("new")), s.schedule("b", value("new")))
		s.settle(t0 + 1000)
		for _, slot := range s.allSlots() {
			_, _, err := s.Retire(s.ctx, Range{Slot: slot, To: t0 + 1000})
			require.NoError(t, err)
		}
		require.Zero(t, s.count("tasks"))
		require.Len(t, s.do(s.cancel("b")), 2, "the waiting schedule, and its cancel")
		require.Equal(t, "cancelled", s.state("b"))
		require.Equal(t, []schemas.State{schemas.StateScheduled}, s.resolve())
		require.Equal(t, "new", string(s.body("a").Value))
	})
}

// What waits comes back byte for byte.
func TestWaitingRequestsKeepTheirBytes(t *testing.T) {
	each(t, func(t *testing.T, s *fixture) {
		s.do(s.schedule("a"))
		s.claim(t0 + 1000)
		r := s.schedule("a", version(4), wantReport, maxAttempts(3), fixedBackoff(7000*ms), tell(schemas.EventsFinal))
		r.Key, r.Value = []byte{0xff, 0, '"'}, nil
		r.Headers = []kgo.RecordHeader{{Key: "\xff\xfe", Value: []byte{0x80}}, {Key: "x"}, {Key: "x", Value: []byte{}}}
		s.do(r)
		s.settle(t0 + 1000)
		s.resolve()
		want := schemas.Body{Key: r.Key, Headers: r.Headers, Settings: r.Settings}
		require.Equal(t, want, s.body("a"))
		require.EqualValues(t, 4, s.row("a").Version)
	})
}

// The identities are answered for as many as asked, and a batch may hold both new requests and what is to be resolved.
func TestResolvable(t *testing.T) {
	each(t, func(t *testing.T, s *fixture) {
		ids := []string{"a", "b", "c", "d"}
		for _, id := range ids {
			s.do(s.schedule(id))
		}
		s.claim(t0 + 1000)
		for _, id := range ids {
			s.do(s.schedule(id, value("1")), s.schedule(id, value("2")))
		}
		s.settle(t0 + 1000)
		keys, err := s.Resolvable(s.ctx, 3)
		require.NoError(t, err)
		require.Len(t, keys, 3, "each identity once")

		b := s.batch(s.schedule("a", value("3")), s.schedule("fresh"))
		b.Resolve = append(keys, Ident("no", "such"))
		s.apply(b)
		s.resolve()
		require.Equal(t, "3", string(s.body("a").Value))
		for _, id := range ids[1:] {
			require.Equal(t, "2", string(s.body(id).Value))
		}
		require.Equal(t, "pending", s.state("fresh"))
		require.Zero(t, s.count("waiting"))
	})
}

// However many requests wait for one delivery, each transaction decides so many of them, in their order, and what comes meanwhile
// stands behind them.
func TestManyRequestsWaitForOneOutcome(t *testing.T) {
	eachLarge(t, func(t *testing.T, s *fixture) {
		const n = 2*maxHeld + 500
		id := strings.Repeat("\x01", schemas.MaxIDLen) // six bytes each in an event
		s.do(s.schedule(id, in(0), wantReport))
		s.awaitReport(id, 1)
		for first := 0; first < n; first += 500 {
			var more []any
			for i := range 500 {
				more = append(more, s.schedule(id, in(time.Hour), value(fmt.Sprint(first+i))))
			}
			s.do(more...)
		}
		require.Equal(t, n, s.count("waiting"))
		require.Len(t, s.do(says(id, 1, schemas.StatusOK)), 1)
		require.Equal(t, n, s.count("waiting"), "those that were looked at beside the report wait on")

		require.Len(t, s.resolve(), maxHeld)
		require.Equal(t, fmt.Sprint(maxHeld-1), string(s.body(id).Value))
		require.Len(t, s.do(s.cancel(id)), maxHeld, "it takes the next of them along, and waits")
		require.Equal(t, fmt.Sprint(2*maxHeld-1), string(s.body(id).Value))
		require.Len(t, s.resolve(), n-2*maxHeld+1)
		require.Zero(t, s.count("waiting"))
		require.Equal(t, "cancelled", s.state(id))
	})
}

// They are bounded in bytes too.
func TestLargeRequestsWaitForOneOutcome(t *testing.T) {
	each(t, func(t *testing.T, s *fixture) {
		s.do(s.schedule("a", in(0), wantReport))
		s.awaitReport("a", 1)
		for range 8 {
			s.do(s.schedule("a", in(time.Hour), value(strings.Repeat("v", 2<<20))))
		}
		s.do(says("a", 1, schemas.StatusOK))
		taken := len(s.resolve())
		require.Less(t, taken, 8)
		for s.count("waiting") > 0 {
			require.NotEmpty(t, s.resolve())
		}
	})
}
