package intake

import (
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/zap/zaptest"

	"github.com/notyet/notyet/schemas"
	"github.com/notyet/notyet/store"
	"github.com/notyet/notyet/store/line"
	"github.com/notyet/notyet/store/look"
	"github.com/notyet/notyet/task"
)

func TestRetireForgetsEndedTasksOnly(t *testing.T) {
	ctx := t.Context()
	s, err := store.Open(ctx, store.Config{DSN: "sqlite:" + t.TempDir() + "/n.db"}, zaptest.NewLogger(t))
	require.NoError(t, err)
	defer func() { _ = s.Close() }()
	require.NoError(t, s.Migrate(ctx, 1))
	src, err := New(s).Source(ctx, "in", [16]byte{1}, 0, 0)
	require.NoError(t, err)
	now := time.Now().UnixMilli()
	var changes []task.Change
	add := func(op schemas.Op, id string, due int64) {
		changes = append(changes, task.Change{Seq: task.Seq(src.ID, int64(len(changes))), Request: &schemas.Request{Op: op, Topic: "t", ID: id, GivenID: true, Due: due, Accepted: now, Version: -1, Settings: schemas.DefaultSettings()}})
	}
	add(schemas.OpSchedule, "old", now-2000)
	add(schemas.OpSchedule, "recent", now-10)
	add(schemas.OpSchedule, "unsettled", now+1000)
	add(schemas.OpSchedule, "cancelled", now+1000)
	add(schemas.OpCancel, "cancelled", 0)
	_, err = New(s).Apply(ctx, Batch{Advance: []Advance{{src.ID, 0, int64(len(changes))}}, Changes: changes}, store.At(now))
	require.NoError(t, err)
	_, err = New(s).Line().Acquire(ctx, []int{0}, 1, "me")
	require.NoError(t, err)
	require.NoError(t, claimTo(ctx, s, []int{0}, 1, now))
	var tally line.Tally
	tally.Add(changes[0].Seq)
	tally.Add(changes[1].Seq)
	res, err := New(s).Line().Settle(ctx, []line.Done{{Slot: 0, Epoch: 1, From: 0, To: now, Tally: tally}}, nil, store.At(now))
	require.NoError(t, err)
	require.Empty(t, res.Mismatch)

	n, _, err := New(s).Line().Retire(ctx, line.Range{To: now - 1000})
	require.NoError(t, err)
	require.Equal(t, 1, n)
	_, err = look.New(s).Get(ctx, "t", "old")
	require.ErrorIs(t, err, look.ErrNotFound)
	n, _, err = New(s).Line().Retire(ctx, line.Range{To: now + 5000})
	require.NoError(t, err)
	require.Equal(t, 1, n, "what is not settled stays, whatever its place")
	_, err = look.New(s).Get(ctx, "t", "unsettled")
	require.NoError(t, err)

	_, err = look.New(s).Get(ctx, "t", "cancelled")
	require.NoError(t, err)
	n, _, err = New(s).Line().Retire(ctx, line.Range{Slot: task.OutOfLine, To: now})
	require.NoError(t, err)
	require.Equal(t, 1, n)
	_, err = look.New(s).Get(ctx, "t", "cancelled")
	require.ErrorIs(t, err, look.ErrNotFound)
}

// However many have ended, the oldest go first, a bite at a time, until nothing is left; many ended at the very same place.
func TestRetireGoesOnUntilNothingIsLeft(t *testing.T) {
	each(t, func(t *testing.T, s *fixture) {
		const n = 2*line.RetireBite + line.RetireBite/2
		for i := range 5 {
			records := make([]any, 0, n/5)
			for j := range n / 5 {
				records = append(records, s.schedule(fmt.Sprint(i, "-", j), key("k")))
			}
			s.do(records...)
		}
		s.do(s.schedule("later", key("k"), in(5*time.Second)))
		slot := s.row("0-0").Slot
		s.deliver(t0 + 10_000)
		var bites []int
		for rest := (line.Range{Slot: slot, To: t0 + 4000}); rest.From < rest.To; {
			var took int
			var err error
			took, rest, err = s.Retire(s.ctx, rest)
			require.NoError(t, err)
			bites = append(bites, took)
			require.LessOrEqual(t, len(bites), 4, "%v", bites)
		}
		require.Equal(t, []int{line.RetireBite, line.RetireBite, line.RetireBite / 2}, bites)
		require.Equal(t, 1, s.count("tasks"))
		require.Equal(t, "delivered", s.state("later"))
	})
}

func TestNextEnded(t *testing.T) {
	each(t, func(t *testing.T, s *fixture) {
		_, ok, err := s.NextEnded(s.ctx, 0)
		require.NoError(t, err)
		require.False(t, ok, "nothing has ended")
		s.do(s.schedule("a"), s.cancel("a"))
		s.now += 5000
		s.do(s.schedule("b"), s.cancel("b"))
		for after, want := range map[int64]int64{0: t0, t0 - 1: t0, t0: t0 + 5000} {
			pos, ok, err := s.NextEnded(s.ctx, after)
			require.NoError(t, err)
			require.True(t, ok)
			require.Equal(t, want, pos, "after %d", after)
		}
	})
}
