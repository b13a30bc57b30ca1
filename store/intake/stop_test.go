package intake

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/notyet/notyet/schemas"
	"github.com/notyet/notyet/store/internal/handle"
	"github.com/notyet/notyet/store/line"
	"github.com/notyet/notyet/store/look"
	"github.com/notyet/notyet/task"
)

// retry makes a task wait for a retry of which nothing is under way.
func (f *fixture) retry(id string, pause time.Duration) {
	f.t.Helper()
	f.now = max(f.now, f.row(id).Pos)
	f.claim(f.now)
	e := f.transition(id, task.StateRetry, f.now+pause.Milliseconds(), f.row(id).Attempt+1)
	e.Idle = true
	f.settle(f.now, e)
}

func TestStop(t *testing.T) {
	for name, wait := range map[string]func(s *fixture){
		"waits for a report": func(s *fixture) { s.awaitReport("a", 1) },
		"waits for a retry":  func(s *fixture) { s.retry("a", time.Hour) },
		"its retry is held": func(s *fixture) {
			s.retry("a", time.Second)
			s.now += 2000
			s.claim(s.now)
			s.hold("a")
		},
		"its retry was reported": func(s *fixture) {
			s.awaitReport("a", 1)
			require.Equal(s.t, schemas.StateRetrying, s.answer(says("a", 1, schemas.StatusRetry)))
		},
		"its retry was reported before the wait": func(s *fixture) {
			s.claim(t0 + 1000)
			s.do(says("a", 1, schemas.StatusRetry))
			s.settle(t0+1000, s.transition("a", task.StateReport, t0+61_000, 1))
		},
	} {
		t.Run(name, func(t *testing.T) {
			each(t, func(t *testing.T, s *fixture) {
				s.do(s.schedule("a", wantReport, tell(schemas.EventsAll), tagged("x")))
				wait(s)
				place := s.place("a")
				require.Equal(t, schemas.StateTooLate, s.answer(s.cancel("a")))
				events := s.do(s.stop("a"))
				require.Len(t, events, 1)
				require.Equal(t, schemas.Event{Topic: target, ID: "a", State: schemas.StateStopped, Due: t0 + 1000, At: s.now, Attempt: 1, Lateness: schemas.LatenessUnknown}, events[0])
				require.Equal(t, []handle.Place{place}, s.last.Removed, "from the index")
				require.Equal(t, "stopped", s.state("a"))
				row := s.row("a")
				require.Equal(t, []any{task.OutOfLine, s.now, 1, 0}, []any{row.Slot, row.Pos, row.Attempt, len(row.Body)})
				require.Zero(t, s.count("dead_letters"))

				require.Empty(t, s.do(says("a", 1, schemas.StatusOK)), "a later report changes nothing")
				require.Equal(t, schemas.StateStopped, s.answer(s.stop("a")), "asked again")
				require.Equal(t, schemas.StateTooLate, s.answer(s.cancel("a")))
				require.Equal(t, schemas.StateTooLate, s.answer(s.fire("a")))
				page, err := look.New(s.Store).List(s.ctx, look.ListFilter{State: "stopped"})
				require.NoError(t, err)
				require.Len(t, page.Tasks, 1)
				require.Equal(t, schemas.StateScheduled, s.answer(s.schedule("a", tell(schemas.EventsAll))), "the id may be used again")
			})
		})
	}
}

// A stop of a task that is claimed waits for the outcome of the delivery, and so do those behind it.
func TestStopWaitsForTheOutcome(t *testing.T) {
	exit := func(state task.State, attempt int, idle bool) func(s *fixture) {
		return func(s *fixture) {
			e := s.transition("a", state, s.now+5000, attempt)
			if e.Idle = idle; state == task.StateDead {
				e.Dead = task.NewDeadLetter(s.row("a"), schemas.KindDead, "because", s.now)
			}
			s.settle(t0+1000, e)
		}
	}
	for name, c := range map[string]struct {
		end  func(s *fixture)
		want schemas.State
	}{
		"it waits for a report": {exit(task.StateReport, 1, false), schemas.StateStopped},
		"it waits for a retry":  {exit(task.StateRetry, 1, true), schemas.StateStopped},
		"it was not sent":       {exit(task.StateLine, 0, false), schemas.StateCancelled},
		"it is dead":            {exit(task.StateDead, 1, false), schemas.StateTooLate},
		"it was the last":       {func(s *fixture) { s.settle(t0 + 1000) }, schemas.StateTooLate},
		"it was reported": {func(s *fixture) {
			require.Empty(s.t, s.do(says("a", 1, schemas.StatusOK)))
			exit(task.StateReport, 1, false)(s)
		}, schemas.StateTooLate},
		"its end is not known, and then it is": {func(s *fixture) {
			exit(task.StateRetry, 0, false)(s)
			require.Nil(s.t, s.resolve(), "a producer may have it")
			s.now += 6000
			s.claim(s.now)
			require.Nil(s.t, s.resolve())
			s.settle(s.now, s.transition("a", task.StateReport, s.now+1000, 1))
		}, schemas.StateStopped},
	} {
		t.Run(name, func(t *testing.T) {
			each(t, func(t *testing.T, s *fixture) {
				s.do(s.schedule("a", wantReport))
				s.claim(t0 + 1000)
				require.Empty(t, s.do(s.stop("a"), s.schedule("a", value("new"), tell(schemas.EventsAll))))
				require.Nil(t, s.resolve())
				require.NotEqual(t, task.StateRetry, s.row("a").State, "nobody was told that it is too late: unsent, it is pending again")
				c.end(s)
				require.Equal(t, []schemas.State{c.want, schemas.StateScheduled}, s.resolve())
				require.Equal(t, "new", string(s.body("a").Value))
				require.Zero(t, s.count("waiting"))
			})
		})
	}
}

// A stop with a version keeps schedules of that version and lower ones away, as a cancel does.
func TestStopWithAVersion(t *testing.T) {
	each(t, func(t *testing.T, s *fixture) {
		s.do(s.schedule("a", wantReport, version(2)))
		s.awaitReport("a", 1)
		require.Equal(t, schemas.StateStale, s.answer(s.stop("a", version(1))))
		require.Equal(t, schemas.StateStopped, s.answer(s.stop("a", version(3))))
		require.Equal(t, "stopped", s.state("a"))
		for _, v := range []int64{2, 3} {
			require.Equal(t, schemas.StateStale, s.answer(s.schedule("a", version(v), tell(schemas.EventsAll))), v)
		}
		require.Equal(t, schemas.StateStopped, s.answer(s.stop("a", version(3))))
		require.Equal(t, schemas.StateStopped, s.answer(s.stop("a", version(4))))
		require.Equal(t, schemas.StateStale, s.answer(s.schedule("a", version(4), tell(schemas.EventsAll))))
		require.Equal(t, schemas.StateScheduled, s.answer(s.schedule("a", version(5), tell(schemas.EventsAll))))

		require.Equal(t, schemas.StateCancelled, s.answer(s.stop("unknown", version(3))))
		require.Equal(t, schemas.StateStale, s.answer(s.schedule("unknown", version(3), tell(schemas.EventsAll))))
	})
}

// A retry can be brought forward, and keeps its due time.
func TestFireOfARetry(t *testing.T) {
	each(t, func(t *testing.T, s *fixture) {
		s.do(s.schedule("a", wantReport))
		s.retry("a", time.Hour)
		s.now += 10
		events := s.do(s.fire("a"))
		require.Equal(t, []any{schemas.StateFired, int64(t0 + 1000)}, []any{events[0].State, events[0].Due})
		row := s.row("a")
		require.Equal(t, []any{s.now, int64(t0 + 1000), task.StateRetry, 1, true}, []any{row.Pos, row.Due, row.State, row.Attempt, row.Idle})
		require.Equal(t, schemas.StateStopped, s.answer(s.stop("a")), "nothing of it is under way yet")
	})
}

// A dispatcher of an older version moves a task, and does not say that nothing of it is under way.
func TestARetryThatAnOlderProgramHasMoved(t *testing.T) {
	each(t, func(t *testing.T, s *fixture) {
		s.do(s.schedule("a", wantReport))
		s.retry("a", time.Second)
		_, err := s.db.ExecContext(s.ctx, "UPDATE tasks SET pos = pos + 10000, state = 1, attempt = 1")
		require.NoError(t, err)
		require.Empty(t, s.do(s.stop("a")), "it waits for the outcome of the next attempt")
	})
}

// A retry that moves to another slot, at whatever place, stays one of which nothing is under way.
func TestARetryThatMovesToAnotherSlot(t *testing.T) {
	each(t, func(t *testing.T, f *fixture) {
		_, err := f.SetSlots(f.ctx, 8)
		require.NoError(t, err)
		f.takeAll()
		slot, ids := f.someThatLeave(t, 8)
		f.now += time.Second.Milliseconds()
		f.claimFar(f.now)
		var exits []line.Transition
		for i, id := range ids {
			e := f.transition(id, task.StateRetry, f.now+10_000+int64(i), 1)
			e.Idle = i > 0
			exits = append(exits, e)
		}
		f.settle(f.now, exits...)
		_, err = f.db.ExecContext(f.ctx, "UPDATE slots SET claimed = claimed + 10001, done = done + 10001 WHERE slot > 0")
		require.NoError(t, err)
		moved, err := f.Split(f.ctx, slot, f.epoch, f.now, f.now, nobodyWaits)
		require.NoError(t, err)
		require.Len(t, moved.Added, len(ids))
		for i, id := range ids {
			require.NotEqual(t, slot, f.row(id).Slot)
			require.Equal(t, i > 0, f.row(id).Idle, "%d", i)
		}
	})
}
