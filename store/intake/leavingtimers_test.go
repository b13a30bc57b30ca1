package intake

import (
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/notyet/notyet/schemas"
	"github.com/notyet/notyet/store/internal/handle"
	"github.com/notyet/notyet/store/letters"
	"github.com/notyet/notyet/task"
	"github.com/notyet/notyet/test/lettertest"
	"github.com/notyet/notyet/timer"
)

// timerKey is the identity of the timer of timerRequest.
var timerKey = task.Ident(target, "t")

// takeOutTimer has the timer leave, and returns whether it did.
func (f *fixture) takeOutTimer() bool {
	f.t.Helper()
	n, err := f.mover().TakeOutTimers(f.ctx, f.leaves(), 0, [][16]byte{timerKey, task.Ident(target, "none")})
	require.NoError(f.t, err)
	return n == 1
}

// take has g take what has left f, with the sources that name its deliveries.
func (g *fixture) take(f *fixture) {
	g.t.Helper()
	all, err := f.DeliverySources(f.ctx)
	require.NoError(g.t, err)
	require.NoError(g.t, g.mover().AdoptSources(g.ctx, all))
	g.now = f.now
	g.arrive(f)
}

// deliveryKey is the key of a task's first attempt.
func (f *fixture) deliveryKey(id string) string {
	f.t.Helper()
	all, err := f.DeliverySources(f.ctx)
	require.NoError(f.t, err)
	src, offset := task.SplitSeq(f.row(id).Seq)
	for _, s := range all {
		if s.ID == src {
			return s.DeliveryKey(offset, 1)
		}
	}
	require.Fail(f.t, "no source", "%d", src)
	return ""
}

// A timer leaves with its runs: none is made twice, and each keeps the key that names its deliveries.
func TestATimerFollowsWithItsRuns(t *testing.T) {
	each(t, func(t *testing.T, f *fixture) {
		g := f.moves(t)
		f.do(f.timerRequest(schemas.OpTimer))
		f.make()
		runs := f.pending()
		cancel := schemas.NewRequest(schemas.OpCancel, target, timer.RunID("t", runs[1]))
		require.Equal(t, schemas.StateCancelled, f.answer(&cancel))
		key := f.deliveryKey(timer.RunID("t", runs[0]))
		was := *f.timer()
		require.True(t, f.takeOutTimer())
		require.Nil(t, f.timer())
		require.Empty(t, f.live())
		g.take(f)
		g.own()
		left := append([]int64{runs[0]}, runs[2:]...)
		require.Equal(t, left, g.lineUp())
		require.Equal(t, key, g.deliveryKey(timer.RunID("t", runs[0])))
		is := *g.timer()
		was.Slot, was.Placed, was.Moved = is.Slot, is.Placed, is.Moved
		require.Equal(t, was, is)
		require.Zero(t, g.make(), "each once")
		g.now += 10_000
		require.Equal(t, 1, g.make())
		last := g.lineUp()[len(g.lineUp())-1]
		require.Equal(t, runs[len(runs)-1]+10_000, last, "it goes on")
		source, _ := task.SplitSeq(g.row(timer.RunID("t", last)).Seq)
		require.Equal(t, task.RunSource+1, source, "a number of the database that makes it")

		require.Equal(t, schemas.StateTimerDeleted, g.answer(g.timerRequest(schemas.OpTimerDelete)))
		require.Empty(t, g.lineUp(), "those that followed go too")
	})
}

// lineUp returns the runs that are pending, those of all databases.
func (f *fixture) lineUp() (runs []int64) {
	f.t.Helper()
	for _, t := range f.live() {
		if task.IsRun(t.Seq) {
			runs = append(runs, t.Due)
		}
	}
	return runs
}

// The runs of a timer leave before it, as other tasks, unless one must wait for another: only the timer knows that.
func TestRunsThatMustBeAloneLeaveWithTheirTimer(t *testing.T) {
	each(t, func(t *testing.T, f *fixture) {
		f.moves(t)
		f.do(f.timerRequest(schemas.OpTimer))
		f.make()
		first := f.pending()[0]
		require.Equal(t, 1, f.takeOut(timer.RunID("t", first)))
		f.do(f.timerRequest(schemas.OpTimer, alone))
		f.make()
		runs := f.pending()
		require.Zero(t, f.takeOut(timer.RunID("t", runs[0])))
		f.now = runs[0]
		f.claim(f.now)
		f.sql("UPDATE timers SET running = (SELECT MIN(seq) FROM tasks)")
		require.False(t, f.takeOutTimer(), "a run is in flight")
		first = runs[0]
		f.settle(f.now, f.transition(timer.RunID("t", first), task.StateRetry, first+15_000, 1))
		require.False(t, f.takeOutTimer(), "its broker has not answered")
		f.claim(first + 15_000)
		f.deliver(first + 15_000)
		require.True(t, f.takeOutTimer())
		require.Empty(t, f.pending())
	})
}

func alone(r *schemas.Request) { r.Timer.Overlap = schemas.OverlapSkip }

// A timer that is there already is the later one: the former home was set back.
func TestATimerThatFollowsAgainStaysAsItIs(t *testing.T) {
	each(t, func(t *testing.T, f *fixture) {
		g := f.moves(t)
		for range 2 { // the second time after the set-back
			f.do(f.timerRequest(schemas.OpTimer))
			f.make()
			require.True(t, f.takeOutTimer())
			g.take(f)
			if g.timer().State == task.TimerEnabled {
				require.Equal(t, schemas.StateTimerDeleted, g.answer(g.timerRequest(schemas.OpTimerDelete)))
			}
		}
		require.Equal(t, task.TimerDeleted, g.timer().State, "nothing comes after it was deleted")
		require.Empty(t, g.lineUp())
	})
}

// A run that was made here, or cancelled before it was made, is the one that counts.
func TestARunThatIsHereAlreadyStays(t *testing.T) {
	each(t, func(t *testing.T, f *fixture) {
		g := f.moves(t)
		f.do(f.timerRequest(schemas.OpTimer))
		f.make()
		run := timer.RunID("t", f.pending()[3])
		cancel := schemas.NewRequest(schemas.OpCancel, target, run)
		cancel.Version = 7
		require.Equal(t, schemas.StateCancelled, g.answer(&cancel))
		before := g.row(run)
		require.Equal(t, 1, f.takeOut(run))
		g.take(f)
		require.Equal(t, before, g.row(run))
		require.Equal(t, "cancelled", g.state(run))
	})
}

// A run that was cancelled before it was made is not made after its timer has moved. And what a run before the move became is not known.
func TestWhatIsKnownOfRunsFollows(t *testing.T) {
	each(t, func(t *testing.T, f *fixture) {
		g := f.moves(t)
		f.do(f.timerRequest(schemas.OpTimer))
		f.make()
		run := f.pending()[len(f.pending())-1] + 30_000
		cancel := schemas.NewRequest(schemas.OpCancel, target, timer.RunID("t", run))
		cancel.Version = 7
		require.Equal(t, schemas.StateCancelled, f.answer(&cancel))
		require.True(t, f.takeOutTimer())
		g.take(f)
		g.own()
		g.now += 60_000
		require.Equal(t, 5, g.make(), "one of six is cancelled")
		require.NotContains(t, g.lineUp(), run)
		require.Equal(t, "cancelled", g.state(timer.RunID("t", run)))
		moved := g.timer().Moved
		_, err := g.AskRun(g.ctx, target, "t", moved+1, moved+1000)
		require.ErrorIs(t, err, handle.ErrMoving)
		g.sql("UPDATE homes SET followed = 1")
		for at, forgotten := range map[int64]int{moved - 1: 1, moved + 1: 0} {
			asked, err := g.AskRun(g.ctx, target, "t", at, moved+1000)
			require.NoError(t, err)
			require.Equal(t, forgotten, asked.Forgotten)
		}
	})
}

// A run leaves while its move is only announced, and its timer goes on. Put back, the run is one that a change of the timer takes away.
func TestARunThatIsPutBackIsKnownToItsTimer(t *testing.T) {
	each(t, func(t *testing.T, f *fixture) {
		f.moves(t)
		f.sql("UPDATE homes SET held = 0")
		f.do(f.timerRequest(schemas.OpTimer))
		f.make()
		first := f.pending()[0]
		require.Equal(t, 1, f.takeOut(timer.RunID("t", first)))
		f.now += 5000
		f.claim(f.now)
		f.make()
		f.sql("UPDATE timers SET open = next")
		f.putBack()
		require.Equal(t, first, f.timer().Open)
		require.Contains(t, f.pending(), first)
		require.Equal(t, schemas.StateTimerDeleted, f.answer(f.timerRequest(schemas.OpTimerDelete)))
		require.Empty(t, f.pending())
	})
}

// A run that was fired before its instant is not made again by a timer that is set anew after the move.
func TestARunThatWasFiredIsNotMadeAgain(t *testing.T) {
	each(t, func(t *testing.T, f *fixture) {
		g := f.moves(t)
		f.now = time.Now().UnixMilli() / 10_000 * 10_000
		f.do(f.timerRequest(schemas.OpTimer))
		f.make()
		run := f.pending()[5]
		fire := schemas.NewRequest(schemas.OpFire, target, timer.RunID("t", run))
		require.Equal(t, schemas.StateFired, f.answer(&fire))
		ahead := f.pending()[2]
		f.deliver(f.row(timer.RunID("t", run)).Pos)
		f.claim(ahead)
		f.make()
		require.True(t, f.takeOutTimer())
		g.take(f)
		require.Equal(t, schemas.StateTimerSet, g.answer(g.timerRequest(schemas.OpTimer, value("other"))))
		g.own()
		require.Positive(t, g.make())
		require.NotContains(t, g.lineUp(), run)
		require.Equal(t, "succeeded", g.state(timer.RunID("t", run)))
		require.NotContains(t, g.lineUp(), ahead, "it is in flight")
		f.settle(ahead, f.transition(timer.RunID("t", ahead), task.StateRetry, ahead+1000, 1))
		f.sql("UPDATE tasks SET idle = pos")
		require.Equal(t, 1, f.takeOut(timer.RunID("t", ahead)))
		g.take(f)
		require.Contains(t, g.lineUp(), ahead, "it has failed")
		require.NotContains(t, g.timer().Elsewhere, ahead)
	})
}

// A timer is set again, and leaves before that is decided. What was sent meanwhile is not made again with the new content.
func TestARunThatWasSentBeforeTheMoveIsNotMadeAgain(t *testing.T) {
	each(t, func(t *testing.T, f *fixture) {
		g := f.moves(t)
		f.now = time.Now().UnixMilli()/10_000*10_000 - 30_000
		f.do(f.timerRequest(schemas.OpTimer))
		f.make()
		sets := f.timerRequest(schemas.OpTimer, value("other"))
		sent := f.pending()[:2]
		f.now += 25_000
		f.claim(f.now)
		f.deliver(f.now)
		f.make()
		require.True(t, f.takeOutTimer())
		g.take(f)
		require.Equal(t, schemas.StateTimerSet, g.answer(sets))
		g.own()
		require.Positive(t, g.make())
		for _, run := range sent {
			require.NotContains(t, g.lineUp(), run)
		}
	})
}

// A deleted timer knows that it has moved: what it did before is not known here.
func TestADeletedTimerFollows(t *testing.T) {
	each(t, func(t *testing.T, f *fixture) {
		g := f.moves(t)
		f.do(f.timerRequest(schemas.OpTimer))
		f.do(f.timerRequest(schemas.OpTimerDelete, version(3)))
		require.True(t, f.takeOutTimer())
		g.take(f)
		require.Equal(t, task.TimerDeleted, g.timer().State)
		require.Positive(t, g.timer().Moved)
		require.Equal(t, schemas.StateTimerSet, g.answer(g.timerRequest(schemas.OpTimer, version(4))))
		require.Positive(t, g.timer().Moved)
	})
}

// A run that outlasts its timer is a task as others: it follows, and comes back where the move is taken back.
func TestARunWhoseTimerWasDeletedFollows(t *testing.T) {
	each(t, func(t *testing.T, f *fixture) {
		g := f.moves(t)
		f.do(f.timerRequest(schemas.OpTimer))
		_, err := f.AskRun(f.ctx, target, "t", f.now, f.now)
		require.NoError(t, err)
		run := timer.RunID("t", f.now)
		require.Equal(t, schemas.StateTimerDeleted, f.answer(f.timerRequest(schemas.OpTimerDelete, version(3))))
		f.sql("UPDATE homes SET held = 0")
		require.Equal(t, 1, f.takeOut(run))
		f.putBack()
		require.Equal(t, "pending", f.state(run))
		f.sql("UPDATE homes SET held = 1")
		require.True(t, f.takeOutTimer())
		require.Equal(t, 1, f.takeOut(run))
		g.take(f)
		require.Equal(t, "pending", g.state(run))
	})
}

// A run that was asked for is none that its timer has made. It comes back all the same where the move is taken back.
func TestARunThatWasAskedForIsPutBack(t *testing.T) {
	each(t, func(t *testing.T, f *fixture) {
		f.moves(t)
		f.sql("UPDATE homes SET held = 0")
		f.do(f.timerRequest(schemas.OpTimer))
		_, err := f.AskRun(f.ctx, target, "t", f.now-1, f.now)
		require.NoError(t, err)
		run := timer.RunID("t", f.now-1)
		require.Equal(t, 1, f.takeOut(run))
		f.putBack()
		require.Equal(t, "pending", f.state(run))
	})
}

// putBack puts back what has left.
func (f *fixture) putBack() {
	f.t.Helper()
	for more := true; more; {
		var err error
		more, err = f.mover().PutBack(f.ctx, moving)
		require.NoError(f.t, err)
	}
}

// The former home is set back after a part of a timer's runs had come: the others come with the timer that leaves again.
func TestRunsThatHadNotComeBeforeASetBack(t *testing.T) {
	each(t, func(t *testing.T, f *fixture) {
		g := f.moves(t)
		f.do(f.timerRequest(schemas.OpTimer))
		f.make()
		runs := f.pending()
		require.True(t, f.takeOutTimer())
		g.take(f)
		g.sql(fmt.Sprintf("DELETE FROM tasks WHERE seq = %d", g.row(timer.RunID("t", runs[3])).Seq))
		f.sql("DELETE FROM leaving")
		f.do(f.timerRequest(schemas.OpTimer))
		f.make()
		require.True(t, f.takeOutTimer())
		g.take(f)
		require.ElementsMatch(t, runs, g.lineUp())
	})
}

// Too many runs for one transaction leave before their timer.
func TestATimerWithManyRunsLeaves(t *testing.T) {
	each(t, func(t *testing.T, f *fixture) {
		g := f.moves(t)
		f.do(f.timerRequest(schemas.OpTimer, value(string(make([]byte, 1<<20)))))
		f.make()
		runs := len(f.pending())
		require.Greater(t, runs, 4)
		for left := false; !left; left = f.takeOutTimer() {
			page, err := f.mover().Leavers(f.ctx, moving, 0)
			require.NoError(t, err)
			require.Less(t, len(page), 5, "of a mebibyte each")
		}
		g.take(f)
		require.Len(t, g.lineUp(), runs)
		require.NotNil(t, g.timer())
	})
}

// Somebody stood still while all followed. What lives here again stays.
func TestNothingLeavesOnceAllHasFollowed(t *testing.T) {
	each(t, func(t *testing.T, f *fixture) {
		f.moves(t)
		f.do(f.schedule("a"), f.timerRequest(schemas.OpTimer))
		f.sql("UPDATE homes SET followed = 1")
		_, err := f.mover().TakeOut(f.ctx, f.leaves(), 0, []int64{f.row("a").Seq})
		require.ErrorIs(t, err, ErrNoMove)
		_, err = f.mover().TakeOutTimers(f.ctx, f.leaves(), 0, [][16]byte{timerKey})
		require.ErrorIs(t, err, ErrNoMove)
	})
}

// The remains of an identity are its timer too, and that of a run.
func TestTimersRemain(t *testing.T) {
	each(t, func(t *testing.T, f *fixture) {
		f.moves(t)
		all := func(string) bool { return true }
		f.do(f.timerRequest(schemas.OpTimer, alone))
		f.make()
		id := timer.RunID("t", f.pending()[0])
		left, err := f.mover().Remains(f.ctx, moving, [][16]byte{timerKey}, all)
		require.NoError(t, err)
		require.Equal(t, Remains{Timers: [][16]byte{timerKey}}, left)
		left, err = f.mover().Remains(f.ctx, moving, [][16]byte{task.Ident(target, id)}, all)
		require.NoError(t, err)
		require.Equal(t, Remains{Seqs: []int64{f.row(id).Seq}, Timers: [][16]byte{timerKey}}, left)
		require.True(t, f.takeOutTimer())
		left, err = f.mover().Remains(f.ctx, moving, [][16]byte{timerKey, task.Ident(target, id)}, all)
		require.NoError(t, err)
		require.True(t, left.None())
		require.EqualValues(t, 11, left.Taken)
	})
}

// Dead letters that can be replayed follow, with what is known of their ids. Others stay.
func TestDeadLettersFollow(t *testing.T) {
	each(t, func(t *testing.T, f *fixture) {
		g := f.moves(t)
		for _, id := range []string{"a", "replayed", "bodiless", "cancelled"} {
			f.die(id, version(5), value("v"), tagged("x"))
		}
		ids := f.letterIDs()
		require.Equal(t, []schemas.State{schemas.StateScheduled, schemas.StateCancelled}, states(f.do(f.schedule("cancelled", version(6)), f.cancel("cancelled"))))
		_, _, err := f.Replay(f.ctx, ids[1:2], "me", f.now, false)
		require.NoError(t, err)
		_, err = f.db.ExecContext(f.ctx, "UPDATE dead_letters SET body = ? WHERE task_id = ?", []byte{}, []byte("bodiless"))
		require.NoError(t, err)
		n, err := f.mover().TakeOutLetters(f.ctx, f.leaves(), 0, ids)
		require.NoError(t, err)
		require.Equal(t, 2, n)
		require.Equal(t, 2, f.count("dead_letters"))
		n, err = f.mover().TakeOutEnded(f.ctx, f.leaves(), 0, []int64{f.row("a").Seq, f.row("bodiless").Seq, f.row("cancelled").Seq})
		require.NoError(t, err)
		require.Equal(t, 2, n, "the row of a letter without content stays")
		g.take(f)
		require.Equal(t, "dead", g.state("a"))
		require.Equal(t, schemas.StateStale, g.answer(g.schedule("a", version(4))), "its version is remembered")
		all, err := lettertest.All(g.ctx, g.dead, letters.Filter{Tag: "x"})
		require.NoError(t, err)
		require.Len(t, all, 2)
		_, _, err = g.Replay(g.ctx, g.letterIDs(), "me", g.now, false)
		require.ErrorIs(t, err, handle.ErrMoving)
		g.sql("UPDATE homes SET followed = 1")
		g.now += time.Second.Milliseconds()
		report, added, err := g.Replay(g.ctx, g.letterIDs(), "me", g.now, false)
		require.NoError(t, err)
		require.Equal(t, []Replayed{{ID: all[0].ID, Topic: target, TaskID: "a"},
			{all[1].ID, target, "cancelled", "a newer request of this topic and id was cancelled or stopped, and nothing is delivered after that"}}, report)
		require.Len(t, added, 1)
		require.Equal(t, "v", string(g.body("a").Value))
	})
}

// A run leaves while its move is announced, and its timer a moment later. Both come in one page, and the run is none that the timer has still
// to make.
func TestARunThatLeftBeforeItsTimerComesWithIt(t *testing.T) {
	each(t, func(t *testing.T, f *fixture) {
		g := f.moves(t)
		f.do(f.timerRequest(schemas.OpTimer))
		f.make()
		_, err := f.AskRun(f.ctx, target, "t", f.now-1, f.now)
		require.NoError(t, err)
		run := timer.RunID("t", f.now-1)
		require.Equal(t, 1, f.takeOut(run))
		f.now += 5
		require.True(t, f.takeOutTimer())
		g.take(f)
		require.Equal(t, "pending", g.state(run))
	})
}
