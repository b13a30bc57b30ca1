package intake

import (
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/notyet/notyet/store/internal/tables"
)

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
