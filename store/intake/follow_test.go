package intake

import (
	"database/sql"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/notyet/notyet/schemas"
	"github.com/notyet/notyet/store/internal/handle"
	"github.com/notyet/notyet/store/internal/tables"
	"github.com/notyet/notyet/task"
)

var moving = Following{N: 1, Token: "0123456789abcdef"}

func (f *fixture) mover() Moves { return Moves{f.Intake} }

// leaves is moving, as a mover knows it that has just asked the former home.
func (f *fixture) leaves() Following {
	f.t.Helper()
	now, err := moving, error(nil)
	now.Life, err = f.mover().Life(f.ctx)
	require.NoError(f.t, err)
	return now
}

// moves makes a second database, and the rule that moves targets from the first one to it.
func (f *fixture) moves(t *testing.T) (g *fixture) {
	g = f.backend.fixture(t)
	for _, of := range []*fixture{f, g} {
		_, err := of.db.ExecContext(of.ctx, "INSERT INTO homes (n, pattern, part, parts, former, shard, token, held, announced, followed) VALUES (1, ?, 0, 0, 0, 1, ?, 1, 0, 0)", []byte(target), []byte(moving.Token))
		require.NoError(t, err)
	}
	_, err := g.db.ExecContext(g.ctx, "INSERT INTO meta (name, value, data) VALUES (?, 0, ?)", []byte(handle.ShardNumber), []byte("1"))
	require.NoError(t, err)
	require.NoError(t, g.h.Transact(g.ctx, func(tx *sql.Tx) (err error) {
		g.rules, err = g.h.MapVersion(g.ctx, tx, handle.LockShared)
		return err
	}))
	return g
}

// takeOut takes tasks of some ids out of the line, and returns how many went.
func (f *fixture) takeOut(ids ...string) int {
	f.t.Helper()
	var seqs []int64
	for _, id := range ids {
		seqs = append(seqs, f.row(id).Seq)
	}
	n, err := f.mover().TakeOut(f.ctx, f.leaves(), 0, seqs)
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
