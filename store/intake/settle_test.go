package intake

import (
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/notyet/notyet/schemas"
	"github.com/notyet/notyet/store"
	"github.com/notyet/notyet/store/internal/handle"
	"github.com/notyet/notyet/store/letters"
	"github.com/notyet/notyet/store/line"
	"github.com/notyet/notyet/store/outbox"
	"github.com/notyet/notyet/task"
	"github.com/notyet/notyet/test/lettertest"
)

// Nothing is written for a task that is simply delivered: the offset says so.
func TestSettleDelivered(t *testing.T) {
	each(t, func(t *testing.T, s *fixture) {
		s.do(s.schedule("a", key("k")), s.schedule("b", key("k")), s.schedule("c", key("k"), in(2000*ms)))
		s.claim(t0 + 2000)
		before := s.dump()["tasks"]
		s.settle(t0 + 1000)
		require.Equal(t, before, s.dump()["tasks"])
		require.Equal(t, []string{"delivered", "delivered", "claimed"}, []string{s.state("a"), s.state("b"), s.state("c")})
		s.settle(t0 + 2000)
		require.Equal(t, "delivered", s.state("c"))
	})
}

// A late answer about a task with which others have gone on changes nothing, and nothing is told of it.
func TestLateAnswers(t *testing.T) {
	each(t, func(t *testing.T, s *fixture) {
		s.do(s.schedule("a", wantReport), s.schedule("b", wantReport))
		s.claim(t0 + 1000)
		s.settle(t0+1000, s.transition("a", task.StateRetry, t0+10_000, 0), s.transition("b", task.StateRetry, t0+20_000, 0)) // set aside
		s.claim(t0 + 10_000)
		s.settle(t0+10_000, s.transition("a", task.StateSucceeded, 0, 1))
		require.Equal(t, "succeeded", s.state("a"))
		var late []line.Transition
		for _, id := range []string{"a", "b"} {
			e := s.transition(id, task.StateDead, 0, 1)
			e.Slot = s.row("b").Slot
			e.Dead = &task.DeadLetter{Seq: e.Seq, Kind: schemas.KindDead, Topic: target, TaskID: id, Reason: "no answer"}
			e.Events = []schemas.Event{{Topic: target, ID: id, State: schemas.StateDead}}
			late = append(late, e)
		}
		got, err := s.Settle(s.ctx, nil, late, store.At(s.now))
		require.NoError(t, err)
		require.Equal(t, []int64{late[0].Seq}, got.Ignored)
		require.Len(t, got.Events, 1)
		require.Equal(t, late[1].Events, got.Events[0].Events)
		require.Equal(t, []string{"succeeded", "dead"}, []string{s.state("a"), s.state("b")})
		require.Equal(t, 1, s.count("dead_letters"))
	})
}

// A task that was overlooked on the way cannot be passed over: done stays, and the other slots' moves.
func TestSettleMismatch(t *testing.T) {
	each(t, func(t *testing.T, s *fixture) {
		var records []any
		for i := range 40 {
			records = append(records, s.schedule(fmt.Sprint(i)))
		}
		s.do(records...)
		s.claim(t0 + 1000)
		done := s.doneUpTo(t0 + 1000)
		done[0].Count--
		done[1].Count++
		settled, err := s.Settle(s.ctx, done, nil, store.At(s.now))
		require.NoError(t, err)
		require.ElementsMatch(t, []int{0, 1}, settled.Mismatch)
		slots, err := s.Slots(s.ctx)
		require.NoError(t, err)
		require.Equal(t, []int64{0, 0, t0 + 1000, t0 + 1000}, []int64{slots[0].Done, slots[1].Done, slots[2].Done, slots[3].Done})

		s.settle(t0 + 1000)
		require.Equal(t, "delivered", s.state("7"))
	})
}

// done may only close what lies right behind it and is the owner's: any other range would pass tasks over, or close places
// where writers still put new ones.
func TestSettleRangesMustFit(t *testing.T) {
	each(t, func(t *testing.T, s *fixture) {
		s.do(s.schedule("a", key("k"), in(1000*ms)), s.schedule("b", key("k"), in(2000*ms)), s.schedule("c", key("k"), in(3000*ms)))
		slot := s.row("a").Slot
		s.claim(t0 + 2500)
		of := func(ids ...string) (t line.Tally) {
			for _, id := range ids {
				t.Add(s.row(id).Seq)
			}
			return t
		}
		for name, d := range map[string]line.Done{
			"a gap passes a over":   {Slot: slot, Epoch: s.epoch, From: t0 + 1000, To: t0 + 2000, Tally: of("b")},
			"beyond claimed":        {Slot: slot, Epoch: s.epoch, From: 0, To: t0 + 3000, Tally: of("a", "b", "c")},
			"beyond claimed, empty": {Slot: slot, Epoch: s.epoch, From: 0, To: t0 + 2700, Tally: of("a", "b")},
			"one too many":          {Slot: slot, Epoch: s.epoch, From: 0, To: t0 + 2500, Tally: of("a", "b", "c")},
			"another in its place":  {Slot: slot, Epoch: s.epoch, From: 0, To: t0 + 2500, Tally: of("a", "c")},
		} {
			settled, err := s.Settle(s.ctx, []line.Done{d}, nil, store.At(s.now))
			require.NoError(t, err)
			require.Equal(t, []int{slot}, settled.Mismatch, name)
			require.Equal(t, "claimed", s.state("a"), name)
		}
		s.settle(t0 + 2500)
		// A repetition of something older, in whatever state, moves nothing back.
		settled, err := s.Settle(s.ctx, []line.Done{{Slot: slot, Epoch: s.epoch, From: 0, To: t0 + 1000, Tally: of("a")}}, nil, store.At(s.now))
		require.NoError(t, err)
		require.Empty(t, settled.Mismatch, "it is settled")
		require.Equal(t, "delivered", s.state("b"))
	})
}

// What leaves the line does so with its outcome; the offset then passes its old place.
func TestSettleExits(t *testing.T) {
	each(t, func(t *testing.T, s *fixture) {
		ids := []string{"report", "retry", "back", "dead", "expired", "succeeded", "plain"}
		for _, id := range ids {
			s.do(s.schedule(id, key("k"), wantReport))
		}
		s.claim(t0 + 5000)
		before := map[string]task.Task{}
		for _, id := range ids {
			before[id] = s.row(id)
		}
		s.now = t0 + 1500
		dead := s.transition("dead", task.StateDead, 0, 1)
		dead.Dead = task.NewDeadLetter(before["dead"], schemas.KindDead, "no such topic", s.now)
		expired := s.transition("expired", task.StateDead, 0, 0)
		expired.Dead = task.NewDeadLetter(before["expired"], schemas.KindExpired, "too late", s.now)
		retry := s.transition("retry", task.StateRetry, t0+9000, 1)
		retry.Lane = s.lane(target, task.ClassRetried)
		dead.Events = []schemas.Event{{Topic: target, ID: "dead", State: schemas.StateDead, At: s.now, Reason: "no such topic"}}
		exits := []line.Transition{s.transition("report", task.StateReport, t0+61_000, 1), retry, s.transition("back", task.StateLine, 1, 0), dead, expired, s.transition("succeeded", task.StateSucceeded, 0, 1)}
		settled, err := s.Settle(s.ctx, s.doneUpTo(t0+5000, exits...), exits, store.At(s.now))
		require.NoError(t, err)
		require.Empty(t, settled.Mismatch)

		for id, want := range map[string]struct {
			view    string
			slot    int
			pos     int64
			state   task.State
			attempt int
		}{
			"report":    {"waiting_report", before["report"].Slot, t0 + 61_000, task.StateReport, 1},
			"retry":     {"waiting_retry", before["retry"].Slot, t0 + 9000, task.StateRetry, 1},
			"back":      {"pending", before["back"].Slot, t0 + 5001, task.StateLine, 0},
			"dead":      {"dead", task.OutOfLine, s.now, task.StateDead, 1},
			"expired":   {"dead", task.OutOfLine, s.now, task.StateDead, 0},
			"succeeded": {"succeeded", task.OutOfLine, s.now, task.StateSucceeded, 1},
			"plain":     {"delivered", before["plain"].Slot, t0 + 1000, task.StateLine, 0},
		} {
			row := before[id]
			row.Slot, row.Pos, row.State, row.Attempt, row.Class = want.slot, want.pos, want.state, want.attempt, s.row(id).Class
			require.Equal(t, row, s.row(id), id)
			require.Equal(t, want.view, s.state(id), id)
		}
		require.Equal(t, task.ClassRetried, s.row("retry").Class)
		var moved []int64
		for _, p := range settled.Moved {
			moved = append(moved, p.Seq, p.Pos)
		}
		require.Equal(t, []int64{before["report"].Seq, t0 + 61_000, before["retry"].Seq, t0 + 9000, before["back"].Seq, t0 + 5001}, moved)

		letters, err := lettertest.All(s.ctx, s.dead, letters.Filter{})
		require.NoError(t, err)
		require.Len(t, letters, 2)
		require.Equal(t, []string{schemas.KindDead, schemas.KindExpired}, []string{letters[0].Kind, letters[1].Kind})
		require.Equal(t, settled.Events, s.pendingEvents(10, outbox.TransitionSource))
		require.Len(t, settled.Events, 1)
		require.Equal(t, dead.Events, settled.Events[0].Events)
	})
}

// After an error whose outcome is unknown the owner settles again. Meanwhile callers and consumers may have gone on with the
// tasks that left their place: what they were told must stay.
func TestSettleRepeated(t *testing.T) {
	for name, c := range map[string]struct {
		state task.State
		mean  func(s *fixture)
		want  string
	}{
		"nothing has happened":          {task.StateReport, func(*fixture) {}, "waiting_report"},
		"a report ended it":             {task.StateReport, func(s *fixture) { s.do(says("a", 1, schemas.StatusOK)) }, "succeeded"},
		"a report killed it":            {task.StateReport, func(s *fixture) { s.do(says("a", 1, schemas.StatusFail)) }, "dead"},
		"a report asked for a retry":    {task.StateReport, func(s *fixture) { s.do(says("a", 1, schemas.StatusRetry)) }, "waiting_retry"},
		"it was cancelled":              {task.StateLine, func(s *fixture) { s.do(s.cancel("a")) }, "cancelled"},
		"it was replaced":               {task.StateLine, func(s *fixture) { s.do(s.schedule("a", in(9e9))) }, "pending"},
		"it was fired":                  {task.StateLine, func(s *fixture) { s.do(s.fire("a")) }, "pending"},
		"it was replayed":               {task.StateDead, func(s *fixture) { s.replay() }, "pending"},
		"a dead id was used again":      {task.StateDead, func(s *fixture) { s.do(s.schedule("a", in(9e9))) }, "pending"},
		"a delivered id was used again": {task.StateDead, func(s *fixture) { s.do(s.schedule("plain", in(9e9))) }, "dead"},
	} {
		t.Run(name, func(t *testing.T) {
			each(t, func(t *testing.T, s *fixture) {
				s.do(s.schedule("a", wantReport, key("k")), s.schedule("plain", key("k")))
				s.claim(t0 + 2000)
				s.now = t0 + 1500 // what ends meanwhile ends between done and claimed, but out of the line
				exit := s.transition("a", c.state, t0+500_000, 1)
				if c.state == task.StateDead {
					exit.Dead = task.NewDeadLetter(s.row("a"), schemas.KindDead, "r", s.now)
				}
				done := s.doneUpTo(t0+1000, exit)
				_, err := s.Settle(s.ctx, done, []line.Transition{exit}, store.At(s.now))
				require.NoError(t, err)
				c.mean(s)
				before := s.dump()

				settled, err := s.Settle(s.ctx, done, []line.Transition{exit}, store.At(s.now))
				require.NoError(t, err)
				require.Empty(t, settled.Mismatch, "it was settled the first time")
				require.Equal(t, before, s.dump())
				require.Equal(t, c.want, s.state("a"))
				for _, p := range settled.Moved {
					require.Equal(t, s.place("a").Pos, p.Pos, "the index hears where the task is")
				}
			})
		})
	}
}

// The answer about a sending may come when its task has long been set aside: it counts there, but once.
func TestSettleLateAnswer(t *testing.T) {
	for name, c := range map[string]struct {
		state task.State
		want  string
	}{"delivered": {task.StateSucceeded, "succeeded"}, "delivered, a report is awaited": {task.StateReport, "waiting_report"}, "refused": {task.StateDead, "dead"}} {
		t.Run(name, func(t *testing.T) {
			each(t, func(t *testing.T, s *fixture) {
				s.do(s.schedule("a", wantReport))
				s.claim(t0 + 1000)
				s.settle(t0+1000, s.transition("a", task.StateRetry, t0+30_000, 0))
				exit := s.transition("a", c.state, t0+60_000, 1)
				if c.state == task.StateDead {
					exit.Attempt = 0
				}
				for range 2 {
					_, err := s.Settle(s.ctx, nil, []line.Transition{exit}, store.At(s.now))
					require.NoError(t, err)
					require.Equal(t, c.want, s.state("a"))
					require.Equal(t, exit.Attempt, s.row("a").Attempt)
				}
				if c.state == task.StateReport {
					s.do(says("a", 1, schemas.StatusRetry))
					row := s.row("a")
					_, err := s.Settle(s.ctx, nil, []line.Transition{exit}, store.At(s.now))
					require.NoError(t, err)
					require.Equal(t, row, s.row("a"))
				}
			})
		})
	}
}

// An owner lost a slot while a task was unanswered, and has it back. Meanwhile another owner delivered the task. What the first
// still knows of it neither takes that attempt back nor ends the task.
func TestAttemptsNeverGoBack(t *testing.T) {
	each(t, func(t *testing.T, s *fixture) {
		s.do(s.schedule("a", wantReport))
		s.claim(t0 + 1000)
		s.settle(t0+1000, s.transition("a", task.StateRetry, t0+2000, 1))
		s.claim(t0 + 2000)
		died := s.transition("a", task.StateDead, 0, 0)
		died.From, died.MaybeSent = 0, true // a late answer
		_, err := s.Settle(s.ctx, nil, []line.Transition{died}, store.At(s.now))
		require.NoError(t, err)
		require.Equal(t, task.StateRetry, s.row("a").State)
		aside := s.transition("a", task.StateRetry, t0+30_000, 0)
		aside.From = t0 + 2000
		_, err = s.Settle(s.ctx, nil, []line.Transition{aside}, store.At(s.now))
		require.NoError(t, err)
		require.EqualValues(t, t0+30_000, s.row("a").Pos)
		require.Equal(t, 1, s.row("a").Attempt)
	})
}

// replay brings back every dead letter there is.
func (f *fixture) replay() ([]Replayed, []handle.Place) {
	f.t.Helper()
	letters, err := lettertest.All(f.ctx, f.dead, letters.Filter{Replayed: true})
	require.NoError(f.t, err)
	var ids []int64
	for _, d := range letters {
		ids = append(ids, d.ID)
	}
	report, added, err := f.Replay(f.ctx, ids, "test", f.now, false)
	require.NoError(f.t, err)
	return report, added
}

func TestSettleNothing(t *testing.T) {
	each(t, func(t *testing.T, s *fixture) {
		settled, err := s.Settle(s.ctx, nil, nil, store.At(s.now))
		require.NoError(t, err)
		require.Zero(t, settled)
	})
}

// Every slot of an exit must be the owner's, else nothing of the whole call is written.
func TestSettleIsFencedAsAWhole(t *testing.T) {
	each(t, func(t *testing.T, s *fixture) {
		var records []any
		for i := range 40 {
			records = append(records, s.schedule(fmt.Sprint(i)))
		}
		s.do(records...)
		s.claim(t0 + 1000)
		exit := s.transition("7", task.StateRetry, t0+9000, 1)
		exit.Events = []schemas.Event{{ID: "7", State: schemas.StateRetrying}}
		done := s.doneUpTo(t0+1000, exit)
		lost := (exit.Slot + 1) % testSlots
		_, err := s.Acquire(s.ctx, []int{lost}, s.epoch+1, "you")
		require.NoError(t, err)
		before := s.dump()
		settled, err := s.Settle(s.ctx, done, []line.Transition{exit}, store.At(s.now))
		require.NoError(t, err)
		require.Equal(t, []int{lost}, settled.Fenced)
		require.Equal(t, before, s.dump())
	})
}

// A target that is down takes thousands of tasks out of the line at once.
func TestSettleManyExits(t *testing.T) {
	each(t, func(t *testing.T, s *fixture) {
		const n = 1300
		var records []any
		for i := range n {
			records = append(records, s.schedule(fmt.Sprint(i)))
		}
		s.do(records...)
		s.claim(t0 + 1000)
		var exits []line.Transition
		for i, p := range s.last.Added {
			exits = append(exits, line.Transition{Seq: p.Seq, Slot: p.Slot, Epoch: s.epoch, State: task.StateRetry, Pos: t0 + 10_000 + int64(i), Attempt: i})
		}
		s.settle(t0+1000, exits...)
		for _, i := range []int{0, 999, 1000, n - 1} {
			tasks, _, err := s.Tasks(s.ctx, []int64{exits[i].Seq}, 1<<20)
			require.NoError(t, err)
			require.Equal(t, t0+10_000+int64(i), tasks[0].Pos)
			require.Equal(t, i, tasks[0].Attempt)
		}
	})
}

// An exit is repeated after its reply was lost. Meanwhile the task was claimed again, at its new place: it is not touched.
func TestExitRepeatedAfterItsTaskWasClaimedAgain(t *testing.T) {
	each(t, func(t *testing.T, s *fixture) {
		s.do(s.schedule("a"))
		from := s.row("a").Pos
		s.claim(from)
		exit := s.transition("a", task.StateRetry, from+10, 1)
		exit.From = from
		s.settle(from, exit)
		s.claim(from + 10)
		before := s.dump()["tasks"]
		again, err := s.Settle(s.ctx, nil, []line.Transition{exit}, store.At(s.now))
		require.NoError(t, err)
		require.Empty(t, again.Moved)
		require.Equal(t, before, s.dump()["tasks"])
	})
}

// A settlement whose reply was lost is repeated with more to settle, and meanwhile an id that it settled was used again.
func TestSettleGoesOnFromWhereALostReplyHasIt(t *testing.T) {
	each(t, func(t *testing.T, s *fixture) {
		s.do(s.schedule("a", key("k")), s.schedule("b", key("k"), in(2000*ms)))
		s.claim(t0 + 5000)
		first, all := s.doneUpTo(t0+1500), s.doneUpTo(t0+3000)
		_, err := s.Settle(s.ctx, first, nil, store.At(s.now))
		require.NoError(t, err)
		s.do(s.schedule("a", key("k"), in(9e9)))

		settled, err := s.Settle(s.ctx, all, nil, store.At(s.now))
		require.NoError(t, err)
		require.Empty(t, settled.Mismatch)
		require.Len(t, settled.Stands, len(all))
		for _, at := range settled.Stands {
			require.EqualValues(t, t0+1500, at)
		}
		s.settle(t0 + 3000) // counted from there
		require.Equal(t, "delivered", s.state("b"))
	})
}

// A task that was put off is called back as what it is, if it still stands where it was put; one that somebody else has dealt with
// meanwhile is left alone.
func TestSettleRecalls(t *testing.T) {
	each(t, func(t *testing.T, s *fixture) {
		ids := []string{"waits", "may have been sent", "cancelled", "claimed", "tried again", "reported on"}
		for _, id := range ids {
			s.do(s.schedule(id, key("k")))
		}
		s.claim(t0 + 5000)
		exits := []line.Transition{s.transition("waits", task.StateLine, t0+60_000, 0), s.transition("may have been sent", task.StateRetry, t0+60_000, 0), s.transition("cancelled", task.StateLine, t0+60_000, 0),
			s.transition("claimed", task.StateLine, t0+6000, 0), s.transition("tried again", task.StateRetry, t0+60_000, 1), s.transition("reported on", task.StateReport, t0+60_000, 0)}
		_, err := s.Settle(s.ctx, s.doneUpTo(t0+5000, exits...), exits, store.At(s.now))
		require.NoError(t, err)
		s.do(s.cancel("cancelled"))
		s.claim(t0 + 7000)
		before := map[string]task.Task{}
		var recalls []line.Transition
		for i, id := range ids {
			before[id] = s.row(id)
			e := exits[i]
			e.State, e.From, e.Pos, e.Attempt, e.Recall = task.StateLine, 0, t0+1000, 0, true
			recalls = append(recalls, e)
		}
		settled, err := s.Settle(s.ctx, nil, recalls, store.At(s.now))
		require.NoError(t, err)
		var moved []int64
		for _, id := range ids {
			row := s.row(id)
			if want := before[id]; row.Pos != want.Pos {
				require.Equal(t, int64(t0+7001), row.Pos, "right behind what is claimed")
				moved = append(moved, row.Seq)
				want.Pos = row.Pos
				require.Equal(t, want, row, "and nothing else changes")
			}
		}
		require.Equal(t, []int64{before["waits"].Seq, before["may have been sent"].Seq}, moved)
		require.Subset(t, settled.Moved, []handle.Place{handle.NewPlace(before["waits"].Slot, t0+7001, before["waits"].Seq, t0+7001)})
	})
}

// TestSettlingASlotThatTheDatabaseForgot: it is held by nobody, and its owner need not try again.
func TestSettlingASlotThatTheDatabaseForgot(t *testing.T) {
	each(t, func(t *testing.T, s *fixture) {
		s.claim(t0)
		settled, err := s.Settle(s.ctx, []line.Done{{Slot: 0, Epoch: s.epoch, To: t0}, {Slot: testSlots, Epoch: s.epoch, To: t0}}, nil, store.At(s.now))
		require.NoError(t, err)
		require.Equal(t, []int{testSlots}, settled.Fenced)
	})
}
