package intake

import (
	"database/sql"
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

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
		for more := true; more; {
			more, err = f.mover().PutBack(f.ctx, moving)
			require.NoError(t, err)
		}
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
		n, err := f.mover().TakeOut(f.ctx, moving, 1, []int64{f.row("b").Seq})
		require.NoError(t, err)
		require.Equal(t, 1, n)
		g.arrive(f)
		require.Equal(t, 2, g.count("tasks"))
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
		seq := f.row("x").Seq
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
			l, err := f.mover().leaving(f.ctx, tx, moving, 0)
			if err == nil {
				_, err = l.takeOut(f.ctx, []int64{seq})
			}
			return err
		}))
		require.Equal(t, answer{left: true}, <-answers)
	})
}
