package intake

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/notyet/notyet/schemas"
	"github.com/notyet/notyet/store"
	"github.com/notyet/notyet/store/internal/handle"
	"github.com/notyet/notyet/store/line"
	"github.com/notyet/notyet/task"
	"github.com/notyet/notyet/timer"
)

// start asks whether runs of the timer t, told by their seconds after t0, may be released.
func (f *fixture) start(seconds ...int64) []bool {
	f.t.Helper()
	var out []bool
	for _, why := range f.starts(0, line.Start{Alone: true}, seconds...) {
		out = append(out, why == 0)
	}
	return out
}

// starts asks whether runs of the timer t may be released so many seconds after t0, where a second's lateness is missed.
func (f *fixture) starts(after int64, like line.Start, seconds ...int64) (out []line.Refusal) {
	f.t.Helper()
	var starts []line.Start
	for _, s := range seconds {
		row := f.row(timer.RunID("t", t0+s*1000))
		like.SlotEpoch, like.Seq, like.Topic, like.Timer, like.Run = store.SlotEpoch{Slot: row.Slot, Epoch: f.epoch}, row.Seq, target, "t", t0+s*1000
		starts = append(starts, like)
	}
	refused, err := f.StartRuns(f.ctx, starts, t0+after*1000, time.Second)
	require.NoError(f.t, err)
	for _, s := range starts {
		out = append(out, refused[s.Seq])
	}
	return out
}

// TestAMissedRunIsDroppedForALaterOneThatIsReleased: whatever becomes of the owner, the backlog and the timer.
func TestAMissedRunIsDroppedForALaterOneThatIsReleased(t *testing.T) {
	each(t, func(t *testing.T, s *fixture) {
		s.do(s.timerRequest(schemas.OpTimer))
		s.make() // 0 to 90 s
		missed := line.Start{Missed: true}
		require.Equal(t, []line.Refusal{line.RunMissed, line.RunMissed, 0}, s.starts(45, missed, 0, 10, 40), "that of 40 s is the latest of the missed")
		s.own()
		require.Equal(t, []line.Refusal{line.RunMissed, 0}, s.starts(95, missed, 30, 40), "the next owner, 50 s later, keeps to it")
		require.Equal(t, []line.Refusal{line.RunMissed, line.RunMissed, 0}, s.starts(95, missed, 50, 70, 90), "that of 40 s is not delivered yet; of those behind it, that of 90 s is the latest")
		require.Equal(t, []line.Refusal{line.RunMissed, 0}, s.starts(95, missed, 30, 40), "and that of 40 s keeps its place")
		s.claim(t0 + 40_000)
		s.settle(t0 + 40_000)
		require.Equal(t, []line.Refusal{line.RunMissed, line.RunMissed, 0}, s.starts(75, missed, 30, 50, 70), "that of 40 s is delivered")
		require.Equal(t, schemas.StateCancelled, s.answer(s.cancel(timer.RunID("t", t0+70_000))))
		require.Equal(t, []line.Refusal{line.RunMissed}, s.starts(75, missed, 50), "for that of 60 s: that of 70 s is cancelled")
		require.Equal(t, []line.Refusal{0}, s.starts(75, missed, 60))
		require.Equal(t, []line.Refusal{0}, s.starts(95, missed, 90), "the last that is missed")
	})
}

// TestAMissedRunIsDroppedForOneThatIsStillToBeMade: unless its timer makes no more.
func TestAMissedRunIsDroppedForOneThatIsStillToBeMade(t *testing.T) {
	each(t, func(t *testing.T, s *fixture) {
		s.do(s.timerRequest(schemas.OpTimer))
		s.make()
		s.claim(t0 + 90_000)
		require.Equal(t, []line.Refusal{line.RunMissed}, s.starts(200, line.Start{Missed: true}, 90))
		require.Equal(t, schemas.StateTimerDisabled, s.answer(s.timerRequest(schemas.OpTimerDisable)))
		require.Equal(t, []line.Refusal{line.RunMissed, 0}, s.starts(200, line.Start{Missed: true}, 80, 90), "they were claimed before")
		require.Equal(t, schemas.StateTimerDeleted, s.answer(s.timerRequest(schemas.OpTimerDelete)))
		require.Equal(t, []line.Refusal{line.RunMissed, 0}, s.starts(200, line.Start{Missed: true}, 80, 90))
	})
}

// TestMissedRunsByPolicy: skip drops each, all only what is beyond the latest thousand.
func TestMissedRunsByPolicy(t *testing.T) {
	each(t, func(t *testing.T, s *fixture) {
		policy := func(m schemas.Misfire) *schemas.Request {
			return s.timerRequest(schemas.OpTimer, func(r *schemas.Request) { r.Timer.Misfire = m })
		}
		s.do(policy(schemas.MisfireSkip))
		s.make()
		s.claim(t0 + 90_000)
		require.Equal(t, []line.Refusal{0}, s.starts(0, line.Start{Alone: true}, 0))
		require.Equal(t, []line.Refusal{line.RunMissed}, s.starts(95, line.Start{Alone: true, Missed: true}, 0), "it was started, and the answer was lost")
		missed := line.Start{Missed: true}
		require.Equal(t, []line.Refusal{line.RunMissed, line.RunMissed}, s.starts(95, missed, 0, 90))
		require.Equal(t, schemas.StateTimerDeleted, s.answer(s.timerRequest(schemas.OpTimerDelete)))
		require.Equal(t, []line.Refusal{0}, s.starts(95, missed, 90))
		require.Equal(t, []line.Refusal{line.RunMissed}, s.starts(95, line.Start{Missed: true, Skip: true}, 90))

		s.now += 100_000
		s.do(policy(schemas.MisfireAll))
		s.make() // 100 to 190 s
		require.Equal(t, []line.Refusal{0}, s.starts(195, missed, 100))
	})
}

// TestARunThatWasStartedIsNotDroppedAsMissed: it was put off, and those after it are dropped meanwhile because of it.
func TestARunThatWasStartedIsNotDroppedAsMissed(t *testing.T) {
	each(t, func(t *testing.T, s *fixture) {
		s.do(s.timerRequest(schemas.OpTimer, func(r *schemas.Request) {
			r.Timer.Overlap, r.Settings.Ack = schemas.OverlapSkip, schemas.AckReport
		}))
		s.make()
		s.claim(t0)
		require.Equal(t, []line.Refusal{0}, s.starts(0, line.Start{Alone: true}, 0))
		require.Equal(t, []line.Refusal{line.RunOverlaps, line.RunOverlaps}, s.starts(25, line.Start{Alone: true, Missed: true}, 10, 20))
		require.Equal(t, []line.Refusal{0}, s.starts(85, line.Start{Alone: true, Missed: true}, 0))
	})
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
		_, err := s.StartRuns(s.ctx, []line.Start{{SlotEpoch: store.SlotEpoch{Slot: row.Slot, Epoch: s.epoch - 1}, Seq: row.Seq, Topic: target, Timer: "t"}}, s.now, tolerance)
		require.ErrorIs(t, err, handle.ErrFenced)
		require.Equal(t, before, s.dump())

		require.Equal(t, schemas.StateTimerDeleted, s.answer(s.timerRequest(schemas.OpTimerDelete)))
		require.Equal(t, []bool{false}, s.start(40), "it was claimed when its timer was deleted, and the one before goes on")
		n, err := s.RetireTimers(s.ctx, s.now+1)
		require.NoError(t, err)
		require.Equal(t, 1, n)
		require.Equal(t, []bool{true}, s.start(40), "nothing is remembered of a timer that is forgotten")
	})
}

// TestClaimedRunsOfADeletedTimerAreStartedOneByOne: also where none was started before.
func TestClaimedRunsOfADeletedTimerAreStartedOneByOne(t *testing.T) {
	for name, kept := range map[string]bool{"deleted": false, "replaced and deleted": true} {
		t.Run(name, func(t *testing.T) {
			each(t, func(t *testing.T, s *fixture) {
				s.do(s.timerRequest(schemas.OpTimer, func(r *schemas.Request) {
					r.Timer.Overlap, r.Settings.Ack = schemas.OverlapSkip, schemas.AckReport
				}))
				s.make()
				s.claim(t0 + 20_000)
				if kept {
					s.now += 25_000
					s.do(s.timerRequest(schemas.OpTimer))
				}
				require.Equal(t, schemas.StateTimerDeleted, s.answer(s.timerRequest(schemas.OpTimerDelete)))
				require.Equal(t, []bool{true, false}, s.start(0, 10))
				require.Equal(t, []bool{false}, s.start(20))
				n, err := s.RetireTimers(s.ctx, s.now+1)
				require.NoError(t, err)
				require.Equal(t, 1, n)
			})
		})
	}
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
		require.Equal(t, schemas.StateTimerSet, s.answer(s.timerRequest(schemas.OpTimer, alone, func(r *schemas.Request) { r.Timer.From = &s.now })))
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
