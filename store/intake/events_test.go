package intake

import (
	"fmt"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/notyet/notyet/schemas"
	"github.com/notyet/notyet/store/letters"
	"github.com/notyet/notyet/store/line"
	"github.com/notyet/notyet/task"
	"github.com/notyet/notyet/test/lettertest"
)

// Which states a task tells, by its notyet-events; rejections and answers to cancel and fire are told in any case.
func TestWhichEventsAreTold(t *testing.T) {
	final := []schemas.State{schemas.StateStale, schemas.StateRejected, schemas.StateSucceeded, schemas.StateDead}
	for _, c := range []struct {
		state schemas.State
		ask   func(s *fixture, e schemas.Events) any
	}{
		{schemas.StateScheduled, func(s *fixture, e schemas.Events) any { return s.schedule("a", tell(e)) }},
		{schemas.StateMerged, func(s *fixture, e schemas.Events) any {
			s.do(s.schedule("a"))
			return s.schedule("a", merge(schemas.MergeLast), tell(e))
		}},
		{schemas.StateKept, func(s *fixture, e schemas.Events) any {
			s.do(s.schedule("a"))
			return s.schedule("a", keep, tell(e))
		}},
		{schemas.StateStale, func(s *fixture, e schemas.Events) any {
			s.do(s.schedule("a", version(2)))
			return s.schedule("a", version(1), tell(e))
		}},
		{schemas.StateRejected, func(s *fixture, e schemas.Events) any {
			return s.schedule("a", merge(schemas.MergeSum), value("no"), tell(e))
		}},
		{schemas.StateRetrying, func(s *fixture, e schemas.Events) any {
			s.do(s.schedule("a", wantReport, tell(e)))
			s.awaitReport("a", 1)
			return says("a", 1, schemas.StatusRetry)
		}},
		{schemas.StateSucceeded, func(s *fixture, e schemas.Events) any {
			s.do(s.schedule("a", wantReport, tell(e)))
			s.awaitReport("a", 1)
			return says("a", 1, schemas.StatusOK)
		}},
		{schemas.StateDead, func(s *fixture, e schemas.Events) any {
			s.do(s.schedule("a", wantReport, tell(e)))
			s.awaitReport("a", 1)
			return says("a", 1, schemas.StatusFail)
		}},
	} {
		for _, e := range []schemas.Events{schemas.EventsNone, schemas.EventsFinal, schemas.EventsAll} {
			t.Run(fmt.Sprint(c.state, " ", e), func(t *testing.T) {
				each(t, func(t *testing.T, s *fixture) {
					told := e == schemas.EventsAll || c.state == schemas.StateRejected
					if e == schemas.EventsFinal {
						for _, f := range final {
							told = told || f == c.state
						}
					}
					want := schemas.State("")
					if told {
						want = c.state
					}
					require.Equal(t, want, s.answer(c.ask(s, e)))
				})
			})
		}
	}
}

// What names no target is told without one, and its letter is the intake's.
func TestALetterWithoutATargetBelongsToItsIntake(t *testing.T) {
	each(t, func(t *testing.T, s *fixture) {
		told := s.do(&task.DeadLetter{Kind: schemas.KindRejected, TaskID: "in/0/0", Reason: "bad"})
		require.Equal(t, []schemas.Event{{ID: "in/0/0", State: schemas.StateRejected, At: t0, Kind: schemas.KindRejected, Reason: "bad", Request: told[0].Request}}, told)
		letters, err := lettertest.All(s.ctx, s.dead, letters.Filter{Topic: "in"})
		require.NoError(t, err)
		require.Len(t, letters, 1)
		require.Equal(t, "in/0/0", letters[0].TaskID)
	})
}

func TestRejectionsAreToldInAnyCase(t *testing.T) {
	for _, e := range []schemas.Events{schemas.EventsNone, schemas.EventsFinal, schemas.EventsAll} {
		require.True(t, task.Published(e, schemas.StateRejected))
	}
}

// A request that was rejected before it came here is told about and kept, and stops nothing.
func TestRejectedRecords(t *testing.T) {
	each(t, func(t *testing.T, s *fixture) {
		bad := &task.DeadLetter{Kind: schemas.KindRejected, Topic: target, TaskID: "in/0/1", Due: 9, Reason: `notyet-at "x" is no time: write milliseconds`,
			Body: schemas.EncodeBody(nil, []byte("k"), nil, nil, schemas.DefaultSettings())}
		events := s.do(s.schedule("a"), bad, s.schedule("b"))
		require.Contains(t, events, schemas.Event{Topic: target, ID: "in/0/1", State: schemas.StateRejected, Due: 9, At: t0, Reason: bad.Reason, Kind: schemas.KindRejected})
		require.Len(t, events, 3)
		require.Equal(t, 2, s.count("tasks"))

		letters, err := lettertest.All(s.ctx, s.dead, letters.Filter{})
		require.NoError(t, err)
		require.Len(t, letters, 1)
		want := *bad
		want.ID, want.DiedAt = letters[0].ID, t0
		require.Equal(t, want, letters[0])
	})
}

// Whatever a record holds, the batch goes through: a reason beyond its column, an id beyond any that is accepted.
func TestRejectedRecordsOfAnySize(t *testing.T) {
	each(t, func(t *testing.T, s *fixture) {
		long := strings.Repeat("ä", 3000)
		s.do(&task.DeadLetter{Kind: schemas.KindRejected, Topic: target, TaskID: strings.Repeat("i", 300), Reason: "x" + long})
		letters, err := lettertest.All(s.ctx, s.dead, letters.Filter{})
		require.NoError(t, err)
		require.Len(t, letters, 1)
		require.Equal(t, "x"+long[:4094], letters[0].Reason, "cut before the character that does not fit whole")
		require.Equal(t, strings.Repeat("i", 255), letters[0].TaskID)
	})
}

// A poll may bring much of everything at once: large bodies to be kept, long error texts to be told. No statement may
// become larger than a server takes.
func TestLargeBatches(t *testing.T) {
	each(t, func(t *testing.T, s *fixture) {
		large := strings.Repeat("\x00'", 1<<19)
		records := make([]any, 12)
		for i := range records {
			records[i] = &task.DeadLetter{Kind: schemas.KindRejected, Topic: target, TaskID: fmt.Sprint(i), Reason: "r",
				Body: schemas.EncodeBody(nil, nil, []byte(large), nil, schemas.DefaultSettings())}
		}
		s.do(records...)
		require.Equal(t, len(records), s.count("dead_letters"))

		records = records[:0]
		for i := range 12 {
			records = append(records, s.schedule(fmt.Sprint(i)))
		}
		s.do(records...)
		s.claim(t0 + 1000)
		for i := range records {
			records[i] = s.schedule(fmt.Sprint(i), value(large))
		}
		s.do(records...)
		require.Equal(t, len(records), s.last.Waiting)
		s.settle(t0 + 1000)
		for range records { // a transaction decides a few megabytes of them
			s.resolve()
		}
		require.Zero(t, s.count("waiting"))
		require.Equal(t, large, string(s.body("7").Value))
	})
}

func TestManyLongEvents(t *testing.T) {
	each(t, func(t *testing.T, s *fixture) {
		n := 4500 // × 4 KiB is more than the 16 MiB that a row of MySQL's holds
		if s.backend.sqlite {
			n = 300
		}
		records := make([]any, n)
		for i := range records {
			records[i] = s.schedule(fmt.Sprint(i), wantReport)
		}
		s.do(records...)
		s.claim(t0 + 1000)
		var exits []line.Transition
		for _, p := range s.last.Added {
			exits = append(exits, line.Transition{Seq: p.Seq, Slot: p.Slot, Epoch: s.epoch, State: task.StateReport, Pos: t0 + 60_000, Attempt: 1})
		}
		s.settle(t0+1000, exits...)
		for i := range records {
			r := says(fmt.Sprint(i), 1, schemas.StatusFail)
			r.Error = strings.Repeat("e", schemas.MaxReportError)
			records[i] = r
		}
		require.Len(t, s.do(records...), n)
		told := 0
		for _, box := range s.pendingEvents(1000, s.source.ID) {
			told += len(box.Events)
		}
		require.Equal(t, 2*n, told, "of the schedules and of the reports")
	})
}
