package intake

import (
	"database/sql"
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/notyet/notyet/schemas"
	"github.com/notyet/notyet/task"
)

// What is in flight, or may be, stays where it is, and so does what has ended.
func TestWhatDoesNotLeaveTheLine(t *testing.T) {
	each(t, func(t *testing.T, f *fixture) {
		f.moves(t)
		f.do(f.schedule("retried"))
		f.now = f.row("retried").Pos
		f.claim(f.now)
		f.settle(f.now, f.transition("retried", task.StateRetry, f.now+3_600_000, 1)) // its broker has not answered
		f.do(f.schedule("cancelled"))
		f.do(f.cancel("cancelled"))
		f.do(f.schedule("claimed"))
		f.claim(f.row("claimed").Pos)
		before := f.dump()
		require.Zero(t, f.takeOut("retried", "cancelled", "claimed"))
		require.Equal(t, before, f.dump())
	})
}

func TestAMoveThatIsTakenBackPutsTasksBack(t *testing.T) {
	each(t, func(t *testing.T, f *fixture) {
		f.moves(t)
		_, err := f.db.ExecContext(f.ctx, "UPDATE homes SET held = 0")
		require.NoError(t, err)
		f.do(f.schedule("waits", wantReport))
		f.awaitReport("waits", 1)
		f.do(f.schedule("waits"))
		f.do(f.schedule("pending", tagged("x")))
		tasks, waiting := f.notes("pending"), f.count("waiting")
		f.takeOut("waits", "pending")
		f.putBack()
		require.Equal(t, tasks, f.notes("pending"))
		require.Equal(t, "waiting_report", f.state("waits"))
		require.Equal(t, waiting, f.count("waiting"))
		require.Zero(t, f.count("leaving"))
	})
}

// What is left of ids in the former home is found, whether it is a task or a request that waits for one.
func TestWhatRemainsOfIdentities(t *testing.T) {
	each(t, func(t *testing.T, f *fixture) {
		f.moves(t)
		all := func(string) bool { return true }
		f.do(f.schedule("a", wantReport))
		f.awaitReport("a", 1)
		f.do(f.schedule("a"))
		ids := [][16]byte{task.Ident(target, "a"), task.Ident(target, "b")}
		left, err := f.mover().Remains(f.ctx, moving, ids, all)
		require.NoError(t, err)
		require.Equal(t, Remains{Seqs: []int64{f.row("a").Seq}, Wait: true}, left)
		left, err = f.mover().Remains(f.ctx, moving, ids, func(string) bool { return false })
		require.NoError(t, err)
		require.Equal(t, Remains{}, left)
		f.takeOut("a")
		left, err = f.mover().Remains(f.ctx, moving, ids, all)
		require.NoError(t, err)
		require.Equal(t, Remains{Taken: 2}, left)
	})
}

// The former home was set back while tasks followed: what leaves again has higher numbers than what the new home has stored.
func TestTasksLeaveAgainBehindWhatHasArrived(t *testing.T) {
	each(t, func(t *testing.T, f *fixture) {
		g := f.moves(t)
		f.do(f.schedule("a"), f.schedule("b"))
		f.takeOut("a")
		g.arrive(f)
		for _, set := range []string{"DELETE FROM leaving", "UPDATE homes SET taken = 0"} {
			_, err := f.db.ExecContext(f.ctx, set)
			require.NoError(t, err)
		}
		n, err := f.mover().TakeOut(f.ctx, f.leaves(), 1, []int64{f.row("b").Seq})
		require.NoError(t, err)
		require.Equal(t, 1, n)
		g.arrive(f)
		require.Equal(t, 2, g.count("tasks"))
	})
}

// A mover stands still between the new home's answer and its transaction. Meanwhile another page follows, and the former home forgets it.
func TestNothingLeavesByAnAnswerFromBeforeASetBack(t *testing.T) {
	each(t, func(t *testing.T, f *fixture) {
		g := f.moves(t)
		f.do(f.schedule("a"), f.schedule("b"))
		asked := f.leaves()
		_, arrived, err := g.mover().Progress(g.ctx, asked)
		require.NoError(t, err)
		f.takeOut("a")
		g.arrive(f)
		f.restart("DELETE FROM leaving", "UPDATE homes SET taken = 0")
		_, err = f.mover().TakeOut(f.ctx, asked, arrived, []int64{f.row("b").Seq})
		require.ErrorIs(t, err, ErrForgotten, "b would have the number of a, and not arrive")
		require.Equal(t, "pending", f.state("b"))
	})
}

// What left lately stays, also beside what has left long ago.
func TestWhatLeftLongAgoIsForgotten(t *testing.T) {
	each(t, func(t *testing.T, f *fixture) {
		g := f.moves(t)
		f.do(f.schedule("a"), f.schedule("b"))
		f.takeOut("a", "b")
		g.arrive(f)
		f.sql("UPDATE homes SET followed = 1")
		f.sql("UPDATE leaving SET at = 1000 WHERE num = 1")
		for _, want := range []int{1, 0} {
			n, err := f.mover().RetireLeft(f.ctx, 2000)
			require.NoError(t, err)
			require.Equal(t, want, n)
		}
		require.Equal(t, 1, f.count("leaving"))
	})
}

// A transaction takes so many bytes, with what waits for its tasks.
func TestWhatWaitsCountsForATransactionsSize(t *testing.T) {
	each(t, func(t *testing.T, f *fixture) {
		var seqs []int64
		for i, id := range []string{"a", "b", "c"} {
			f.do(f.schedule(id))
			seqs = append(seqs, f.row(id).Seq)
			key := task.Ident(target, id)
			for n := range []int{3, 1, 0}[i] {
				_, err := f.db.ExecContext(f.ctx, "INSERT INTO waiting (seq, ident, report, request) VALUES (?, ?, 0, ?)", 10*i+n+1, key[:], make([]byte, 1<<20))
				require.NoError(t, err)
			}
		}
		out, err := f.mover().pieces(f.ctx, seqs, sizeOfTasks)
		require.NoError(t, err)
		require.Equal(t, [][]int64{seqs[:1], seqs[1:]}, out)
	})
}

// A sending that its broker has not answered would not follow: its target stays until the answer comes.
func TestATargetWithAnUnansweredSendingIsNotAtRest(t *testing.T) {
	each(t, func(t *testing.T, f *fixture) {
		rests := func(topic string, matches func(string) bool) error {
			return f.h.Transact(f.ctx, func(tx *sql.Tx) error { return f.mover().AtRest(f.ctx, tx, topic, matches) })
		}
		all := func(string) bool { return true }
		f.do(f.schedule("x", maxAttempts(3)), f.schedule("far"))
		f.now = f.row("x").Pos
		f.claim(f.now)
		f.settle(f.now, f.transition("x", task.StateRetry, nowMillis()+10_000, 1))
		require.ErrorContains(t, rests(target, all), "its broker has not answered, of the target "+target)
		require.ErrorIs(t, rests("", all), ErrUnderWay)
		require.NoError(t, rests("", func(topic string) bool { return topic != target }))
		_, err := f.db.ExecContext(f.ctx, "UPDATE tasks SET idle = pos")
		require.NoError(t, err)
		require.NoError(t, rests(target, all))
	})
}

// A rule is taken back while its mover takes tasks out: what leaves is waited for, or it would be in no line.
func TestARuleIsTakenBackAfterWhatLeaves(t *testing.T) {
	each(t, func(t *testing.T, f *fixture) {
		f.moves(t)
		f.do(f.schedule("x"))
		seq, asked := f.row("x").Seq, f.leaves()
		type answer struct {
			left bool
			err  error
		}
		answers := make(chan answer, 1)
		require.NoError(t, f.h.Transact(f.ctx, func(tx *sql.Tx) error {
			if _, err := f.mover().move(f.ctx, tx, moving, "taken", false); err != nil {
				return err
			}
			go func() {
				var a answer
				a.err = f.h.Transact(f.ctx, func(tx *sql.Tx) (err error) {
					a.left, err = f.mover().Left(f.ctx, tx, moving)
					return err
				})
				answers <- a
			}()
			select {
			case a := <-answers:
				return fmt.Errorf("it did not wait: %v", a)
			case <-time.After(100 * time.Millisecond):
			}
			l, err := f.mover().leaving(f.ctx, tx, asked, 0)
			if err == nil {
				_, err = l.takeOut(f.ctx, []int64{seq})
			}
			return err
		}))
		require.Equal(t, answer{left: true}, <-answers)
	})
}

// The new home knows what an id was used for, and up to which version, however its task ended.
func TestEndedTasksFollow(t *testing.T) {
	each(t, func(t *testing.T, f *fixture) {
		g := f.moves(t)
		f.do(f.schedule("reported", wantReport, version(5)), f.schedule("cancelled"), f.schedule("ahead", version(5)))
		f.do(f.cancel("cancelled"), f.cancel("ahead", version(5)))
		f.awaitReport("reported", 1)
		f.do(says("reported", 1, schemas.StatusOK))
		f.do(f.schedule("delivered", version(5)))
		f.deliver(f.row("delivered").Pos)
		ids := []string{"reported", "cancelled", "ahead", "delivered"}
		var seqs []int64
		before := map[string]task.Task{}
		for _, id := range ids {
			before[id] = f.notes(id)
			seqs = append(seqs, before[id].Seq)
		}
		f.do(f.schedule("pending"))
		left, err := f.mover().Remains(f.ctx, moving, [][16]byte{task.Ident(target, "delivered"), task.Ident(target, "cancelled"), task.Ident(target, "pending")}, func(string) bool { return true })
		require.NoError(t, err)
		require.ElementsMatch(t, []int64{before["delivered"].Seq, before["cancelled"].Seq}, left.Ended)
		require.Equal(t, []int64{f.row("pending").Seq}, left.Seqs)
		n, err := f.mover().TakeOutEnded(f.ctx, f.leaves(), 0, append(seqs, f.row("pending").Seq))
		require.NoError(t, err)
		require.Equal(t, len(ids), n)
		require.Equal(t, 1, f.count("tasks"), "what has not ended leaves by itself")

		g.now = f.now
		g.arrive(f)
		for _, id := range ids {
			was, is := before[id], g.notes(id)
			if id == "delivered" {
				was.Slot, was.State, was.Attempt = task.OutOfLine, task.StateSucceeded, 1
			}
			if len(was.Body) == 0 {
				was.Body = is.Body // no content is nil here and empty there
			}
			require.Equal(t, was, is)
			require.Equal(t, schemas.StateKept, g.answer(g.schedule(id, once)), id)
		}
		for _, id := range []string{"reported", "ahead", "delivered"} {
			require.Equal(t, schemas.StateStale, g.answer(g.schedule(id, version(4))), id)
		}
		require.Equal(t, schemas.StateCancelled, g.answer(g.cancel("cancelled")))
		require.Equal(t, schemas.StateTooLate, g.answer(g.cancel("delivered")))
	})
}

// Nobody knows yet what of a slot has ended: its history stays, and is not taken for gone.
func TestHistoryOfAnUnsureSlotWaits(t *testing.T) {
	each(t, func(t *testing.T, f *fixture) {
		f.moves(t)
		f.do(f.schedule("x"))
		f.deliver(f.row("x").Pos)
		f.sql("UPDATE slots SET life = 'before'")
		_, err := f.mover().TakeOutEnded(f.ctx, f.leaves(), 0, []int64{f.row("x").Seq})
		require.ErrorIs(t, err, ErrUnderWay)
	})
}

// The former home is set back to before a task was replaced in the new one: what it has of the task came earlier, and stays away.
func TestWhatWasReplacedSinceStaysAway(t *testing.T) {
	each(t, func(t *testing.T, f *fixture) {
		g := f.moves(t)
		f.do(f.schedule("cancelled"), f.schedule("pending"))
		g.offset = 100
		g.sql(fmt.Sprintf("UPDATE sources SET next_offset = 100 WHERE src = %d", g.source.ID))
		g.do(g.schedule("cancelled"), g.schedule("pending"))
		g.do(g.cancel("cancelled"))
		pending := g.row("pending")
		require.Equal(t, 2, f.takeOut("cancelled", "pending"))
		g.arrive(f)
		require.Equal(t, "cancelled", g.state("cancelled"))
		require.Equal(t, pending, g.row("pending"))
		require.Equal(t, 2, g.count("tasks"))
	})
}

// Of two ended tasks of an id the later one says what comes next. One that has not ended is later than both.
func TestTheLaterOfTwoEndedTasksStays(t *testing.T) {
	each(t, func(t *testing.T, f *fixture) {
		g := f.moves(t)
		for range 9 { // so that the numbers differ
			f.do(f.schedule("number"))
		}
		f.do(f.schedule("earlier", version(3)), f.schedule("later", version(8)), f.schedule("pending", version(3)))
		g.do(g.schedule("earlier", version(7)), g.schedule("later", version(7)), g.schedule("pending", version(7)))
		g.do(g.cancel("earlier"), g.cancel("later"))
		f.do(f.cancel("earlier"), f.cancel("later"), f.cancel("pending"))
		for id, pos := range map[string]int64{"earlier": g.row("earlier").Pos - 1, "later": g.row("later").Pos + 1} {
			_, err := f.db.ExecContext(f.ctx, "UPDATE tasks SET pos = ? WHERE seq = ?", pos, f.row(id).Seq)
			require.NoError(t, err)
		}
		n, err := f.mover().TakeOutEnded(f.ctx, f.leaves(), 0, []int64{f.row("earlier").Seq, f.row("later").Seq, f.row("pending").Seq})
		require.NoError(t, err)
		require.Equal(t, 3, n)
		g.arrive(f)
		require.Equal(t, []int64{7, 8, 7}, []int64{g.row("earlier").Version, g.row("later").Version, g.row("pending").Version})
		require.Equal(t, "pending", g.state("pending"))
	})
}
