package store

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/notyet/notyet/schemas"
	"github.com/notyet/notyet/task"
	"github.com/notyet/notyet/timer"
)

// start asks whether runs of the timer t, told by their seconds after t0, may be released.
func (f *fixture) start(seconds ...int64) []bool {
	f.t.Helper()
	var starts []Start
	for _, s := range seconds {
		row := f.row(timer.RunID("t", t0+s*1000))
		starts = append(starts, Start{SlotEpoch: SlotEpoch{row.Slot, f.epoch}, Seq: row.Seq, Topic: target, Timer: "t"})
	}
	refused, err := f.StartRuns(f.ctx, starts)
	require.NoError(f.t, err)
	out := make([]bool, len(starts))
	for i, s := range starts {
		out[i] = !refused[s.Seq]
	}
	return out
}

// TestARunThatMustBeAlone: none is started while an earlier one is unfinished, however that one goes on.
func TestARunThatMustBeAlone(t *testing.T) {
	each(t, func(t *testing.T, s *fixture) {
		s.do(s.timerRequest(schemas.OpTimer, func(r *schemas.Request) {
			r.Timer.Overlap, r.Settings.Ack = schemas.OverlapSkip, schemas.AckReport
		}))
		s.make()
		first := timer.RunID("t", t0)
		require.True(t, s.body(first).Settings.Run.Alone)
		s.claim(t0)
		require.Equal(t, []bool{true}, s.start(0))
		require.Equal(t, []bool{true}, s.start(0), "again, after a lost reply or by the next owner")
		require.Equal(t, []bool{false}, s.start(10), "the first is claimed")
		s.settle(t0, s.transition(first, task.StateReport, t0+20_000, 1))
		require.Equal(t, []bool{false, false}, s.start(10, 20), "it waits for its report")
		s.claim(t0 + 20_000)
		s.settle(t0+10_000, s.transition(first, task.StateRetry, t0+40_000, 2))
		require.Equal(t, []bool{false}, s.start(20), "it waits for its next attempt")
		s.claim(t0 + 40_000)
		s.settle(t0+20_000, s.transition(first, task.StateReport, t0+200_000, 2))
		require.Equal(t, schemas.StateSucceeded, s.answer(schemas.Report{Topic: target, ID: first, Attempt: 2, Status: schemas.StatusOK}))
		require.Equal(t, []bool{true, false}, s.start(30, 40), "one of two at once")
		require.Equal(t, []bool{true, false}, s.start(30, 40))

		before := s.dump()
		row := s.row(timer.RunID("t", t0+40_000))
		_, err := s.StartRuns(s.ctx, []Start{{SlotEpoch: SlotEpoch{row.Slot, s.epoch - 1}, Seq: row.Seq, Topic: target, Timer: "t"}})
		require.ErrorIs(t, err, ErrFenced)
		require.Equal(t, before, s.dump())

		require.Equal(t, schemas.StateTimerDeleted, s.answer(s.timerRequest(schemas.OpTimerDelete)))
		require.Equal(t, []bool{false}, s.start(40), "it was claimed when its timer was deleted, and the one before goes on")
		n, err := s.RetireTimers(s.ctx, s.now+1)
		require.NoError(t, err)
		require.Equal(t, 1, n)
		require.Equal(t, []bool{true}, s.start(40), "nothing is remembered of a timer that is forgotten")
	})
}

// TestAReplacedTimerStillWaitsForItsRun: its earlier run goes on.
func TestAReplacedTimerStillWaitsForItsRun(t *testing.T) {
	each(t, func(t *testing.T, s *fixture) {
		alone := func(r *schemas.Request) {
			r.Timer.Overlap, r.Settings.Ack = schemas.OverlapSkip, schemas.AckReport
		}
		s.do(s.timerRequest(schemas.OpTimer, alone))
		s.make()
		s.claim(t0)
		require.Equal(t, []bool{true}, s.start(0))
		s.settle(t0, s.transition(timer.RunID("t", t0), task.StateReport, t0+60_000, 1))
		s.now += 1000
		require.Equal(t, schemas.StateTimerSet, s.answer(s.timerRequest(schemas.OpTimer, alone)))
		s.make()
		s.claim(t0 + 11_000)
		require.Equal(t, []bool{false}, s.start(11))
	})
}

// TestATimerThatIsSetAgainStillWaitsForItsRun: its deletion does not end that one.
func TestATimerThatIsSetAgainStillWaitsForItsRun(t *testing.T) {
	for name, change := range map[string][]func(*schemas.Request){"with a version": {version(7)}, "without": nil} {
		t.Run(name, func(t *testing.T) {
			each(t, func(t *testing.T, s *fixture) {
				alone := func(r *schemas.Request) {
					r.Timer.Overlap, r.Settings.Ack = schemas.OverlapSkip, schemas.AckReport
				}
				first := timer.RunID("t", t0)
				s.do(s.timerRequest(schemas.OpTimer, alone))
				s.make()
				s.claim(t0)
				require.Equal(t, []bool{true}, s.start(0))
				s.settle(t0, s.transition(first, task.StateReport, t0+60_000, 1))
				s.now += 1000
				require.Equal(t, schemas.StateTimerDeleted, s.answer(s.timerRequest(schemas.OpTimerDelete, change...)))
				require.Equal(t, schemas.StateNotFound, s.answer(s.timerRequest(schemas.OpTimerDelete)))
				require.Equal(t, schemas.StateNotFound, s.answer(s.timerRequest(schemas.OpTimerEnable)))
				require.Equal(t, schemas.StateTimerSet, s.answer(s.timerRequest(schemas.OpTimer, alone)))
				s.make()
				s.claim(t0 + 21_000)
				require.Equal(t, []bool{false}, s.start(11))
				require.Equal(t, schemas.StateSucceeded, s.answer(schemas.Report{Topic: target, ID: first, Attempt: 1, Status: schemas.StatusOK}))
				require.Equal(t, []bool{true}, s.start(21))
			})
		})
	}
}
