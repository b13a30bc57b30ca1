package intake

import (
	"database/sql"
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/notyet/notyet/schemas"
	"github.com/notyet/notyet/store/internal/tables"
	"github.com/notyet/notyet/task"
)

var moving = Following{N: 1, Token: "0123456789abcdef"}

func (f *fixture) mover() Moves { return Moves{f.Intake} }

// moves makes a second database, and the rule that moves targets from the first one to it.
func (f *fixture) moves(t *testing.T) (g *fixture) {
	g = f.backend.fixture(t)
	for _, of := range []*fixture{f, g} {
		_, err := of.db.ExecContext(of.ctx, "INSERT INTO homes (n, pattern, part, parts, former, shard, token, held, announced, followed) VALUES (1, ?, 0, 0, 0, 1, ?, 1, 0, 0)", []byte(target), []byte(moving.Token))
		require.NoError(t, err)
	}
	return g
}

// takeOut takes tasks of some ids out of the line, and returns how many went.
func (f *fixture) takeOut(ids ...string) int {
	f.t.Helper()
	var seqs []int64
	for _, id := range ids {
		seqs = append(seqs, f.row(id).Seq)
	}
	n, err := f.mover().TakeOut(f.ctx, moving, 0, seqs)
	require.NoError(f.t, err)
	return n
}

// arrive stores what has left f.
func (g *fixture) arrive(f *fixture) {
	g.t.Helper()
	for {
		_, arrived, err := g.mover().Progress(g.ctx, moving)
		require.NoError(g.t, err)
		page, err := f.mover().Leavers(f.ctx, moving, arrived)
		require.NoError(g.t, err)
		if len(page) == 0 {
			return
		}
		for range 2 { // the second time comes from another mover
			_, err = g.mover().Arrive(g.ctx, moving, page)
			require.NoError(g.t, err)
		}
	}
}

func (f *fixture) notes(id string) (t task.Task) {
	f.t.Helper()
	key := task.Ident(target, id)
	rows, err := tables.Fetch(f.ctx, f.db, func(r *sql.Rows, t *task.Task) error { return tables.ScanTaskNotes(r, t) }, "SELECT "+tables.TaskColumns+tables.TaskNotes+" FROM tasks WHERE ident = ?", key[:])
	require.NoError(f.t, err)
	require.Len(f.t, rows, 1, id)
	return rows[0]
}

func TestTasksFollow(t *testing.T) {
	each(t, func(t *testing.T, f *fixture) {
		g := f.moves(t)
		f.do(f.schedule("waits", wantReport, tell(schemas.EventsAll)))
		f.awaitReport("waits", 1)
		f.do(f.schedule("waits", tell(schemas.EventsAll))) // for the end of the one before
		f.do(f.schedule("retried", wantReport, maxAttempts(3), fixedBackoff(time.Hour)))
		f.awaitReport("retried", 1)
		f.do(says("retried", 1, schemas.StatusRetry))
		f.do(f.schedule("held", tagged("x")))
		f.now = max(f.now, f.row("held").Pos)
		f.claim(f.now)
		f.hold("held")
		f.do(f.schedule("pending", tagged("x")))
		before := map[string]task.Task{}
		for _, id := range []string{"waits", "retried", "held", "pending"} {
			before[id] = f.notes(id)
		}
		require.Equal(t, 1, f.count("waiting"))
		require.Equal(t, 4, f.takeOut("waits", "retried", "held", "pending"))
		require.Zero(t, f.count("tasks"))
		require.Zero(t, f.count("waiting"))
		g.now = f.now
		g.arrive(f)
		for id, was := range before {
			is := g.notes(id)
			if id == "held" {
				require.Equal(t, max(was.Due, g.slotRow(is.Slot).Claimed+1), is.Pos)
				was.Pos = is.Pos
			}
			was.Slot = is.Slot // keys are spread anew
			require.Equal(t, was, is, id)
		}
		require.Equal(t, 1, g.count("waiting"))
		require.Equal(t, f.count("tags"), g.count("tags"))
		require.Equal(t, schemas.StateSucceeded, g.answer(says("waits", 1, schemas.StatusOK)))
		require.Equal(t, []schemas.State{schemas.StateScheduled}, g.resolve())
		require.Equal(t, "pending", g.state("waits"))
	})
}

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

// A task never stands in two lines, whenever a mover dies, and none is lost.
func TestTasksArriveOnce(t *testing.T) {
	each(t, func(t *testing.T, f *fixture) {
		g := f.moves(t)
		var ids []string
		for i := range 600 {
			ids = append(ids, fmt.Sprint(i))
			f.do(f.schedule(ids[i]))
		}
		require.Equal(t, 600, f.takeOut(ids...))
		g.arrive(f)
		require.Equal(t, 600, g.count("tasks"))
		taken, arrived, err := f.mover().Progress(f.ctx, moving)
		require.NoError(t, err)
		require.Equal(t, []int64{600, 0}, []int64{taken, arrived})
		_, arrived, err = g.mover().Progress(g.ctx, moving)
		require.NoError(t, err)
		require.Equal(t, int64(600), arrived)
		g.deliver(g.row("5").Pos) // and forgotten
		_, err = g.db.ExecContext(g.ctx, "DELETE FROM tasks")
		require.NoError(t, err)
		page, err := f.mover().Leavers(f.ctx, moving, 0) // by a mover that stood still
		require.NoError(t, err)
		_, err = g.mover().Arrive(g.ctx, moving, page)
		require.NoError(t, err)
		require.Zero(t, g.count("tasks"))
		n, err := f.mover().RetireLeft(f.ctx, nowMillis()+1000)
		require.NoError(t, err)
		require.Zero(t, n, "they may not have arrived")
		_, err = f.db.ExecContext(f.ctx, "UPDATE homes SET followed = 1")
		require.NoError(t, err)
		for n = 1; n > 0; {
			n, err = f.mover().RetireLeft(f.ctx, nowMillis()+1000)
			require.NoError(t, err)
		}
		require.Zero(t, f.count("leaving"))
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

// The new home may remember tasks of the ids, from when the targets lived there before.
func TestAnArrivingTaskFindsItsIDTaken(t *testing.T) {
	each(t, func(t *testing.T, f *fixture) {
		g := f.moves(t)
		f.do(f.schedule("x"), f.schedule("y"), f.schedule("z")) // so that the numbers differ
		g.do(g.schedule("ended"))
		g.do(g.cancel("ended"))
		g.do(g.schedule("pending"))
		other := g.row("pending")
		f.do(f.schedule("ended"), f.schedule("pending"))
		seqs := []int64{f.row("ended").Seq, f.row("pending").Seq}
		f.takeOut("ended", "pending")
		g.arrive(f)
		require.Equal(t, seqs[0], g.row("ended").Seq)
		require.Equal(t, "pending", g.state("ended"))
		require.Equal(t, other, g.row("pending"))
		rows, err := tables.Column[string](g.ctx, g.db, "SELECT id FROM tasks WHERE seq = ?", seqs[1])
		require.NoError(t, err)
		require.Equal(t, []string{fmt.Sprintf("pending@4@%d", f.source.ID)}, rows, "nothing is lost")
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

// The new home has read a task and what waits for it again before they arrive.
func TestWhatWaitsArrivesOnce(t *testing.T) {
	each(t, func(t *testing.T, f *fixture) {
		g := f.moves(t)
		f.do(f.schedule("waits", wantReport))
		f.awaitReport("waits", 1)
		f.do(f.schedule("waits"))
		f.takeOut("waits")
		g.now = f.now
		g.arrive(f)
		_, err := g.db.ExecContext(g.ctx, "UPDATE homes SET arrived = 0")
		require.NoError(t, err)
		g.arrive(f)
		require.Equal(t, 1, g.count("waiting"))
		require.Equal(t, 1, g.count("tasks"))
		for _, set := range []string{"UPDATE homes SET arrived = 0", "DELETE FROM waiting"} {
			_, err = g.db.ExecContext(g.ctx, set)
			require.NoError(t, err)
		}
		g.arrive(f)
		require.Zero(t, g.count("waiting"), "it is decided")
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
		out, err := f.mover().pieces(f.ctx, seqs)
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
			_, err := f.mover().takeOut(f.ctx, tx, moving, 0, []int64{seq})
			return err
		}))
		require.Equal(t, answer{left: true}, <-answers)
	})
}

// A task never gives way to one of another id.
func TestAStrangerWithTheNumberOfATask(t *testing.T) {
	each(t, func(t *testing.T, f *fixture) {
		g := f.moves(t)
		f.do(f.schedule("a"))
		g.do(g.schedule("b"))
		require.Equal(t, f.row("a").Seq, g.row("b").Seq)
		f.takeOut("a")
		page, err := f.mover().Leavers(f.ctx, moving, 0)
		require.NoError(t, err)
		_, err = g.mover().Arrive(g.ctx, moving, page)
		require.ErrorIs(t, err, ErrStranger)
		page, err = f.mover().Leavers(f.ctx, moving, 0)
		require.NoError(t, err)
		require.Len(t, page, 1, "it is not lost")
	})
}
