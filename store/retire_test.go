package store

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/zap/zaptest"

	"github.com/notyet/notyet/schemas"
)

func TestRetireForgetsEndedTasksOnly(t *testing.T) {
	ctx := t.Context()
	s, err := Open(ctx, Config{DSN: "sqlite:" + t.TempDir() + "/n.db"}, zaptest.NewLogger(t))
	require.NoError(t, err)
	defer func() { _ = s.Close() }()
	require.NoError(t, s.Migrate(ctx, 1))
	src, err := s.Source(ctx, "in", [16]byte{1}, 0, 0)
	require.NoError(t, err)
	now := time.Now().UnixMilli()
	var changes []Change
	add := func(op schemas.Op, id string, due int64) {
		changes = append(changes, Change{Seq: Seq(src.ID, int64(len(changes))), Request: &schemas.Request{Op: op, Topic: "t", ID: id, GivenID: true, Due: due, Accepted: now, Version: -1, Settings: schemas.DefaultSettings()}})
	}
	add(schemas.OpSchedule, "old", now-2000)
	add(schemas.OpSchedule, "recent", now-10)
	add(schemas.OpSchedule, "unsettled", now+1000)
	add(schemas.OpSchedule, "cancelled", now+1000)
	add(schemas.OpCancel, "cancelled", 0)
	_, err = s.Apply(ctx, Batch{Advance: []Advance{{src.ID, 0, int64(len(changes))}}, Changes: changes}, now)
	require.NoError(t, err)
	_, err = s.Acquire(ctx, []int{0}, 1, "me")
	require.NoError(t, err)
	require.NoError(t, s.Claim(ctx, []int{0}, 1, now))
	res, err := s.Settle(ctx, []Done{{0, 1, 0, now, 2}}, nil, nil, now)
	require.NoError(t, err)
	require.Empty(t, res.Mismatch)

	n, err := s.Retire(ctx, 0, now-1000, 100)
	require.NoError(t, err)
	require.Equal(t, 1, n)
	_, err = s.Get(ctx, "t", "old")
	require.ErrorIs(t, err, ErrNotFound)
	n, err = s.Retire(ctx, 0, now+5000, 100)
	require.NoError(t, err)
	require.Equal(t, 1, n, "what is not settled stays, whatever its place")
	_, err = s.Get(ctx, "t", "unsettled")
	require.NoError(t, err)

	_, err = s.Get(ctx, "t", "cancelled")
	require.NoError(t, err)
	n, err = s.Retire(ctx, OutOfLine, now, 100)
	require.NoError(t, err)
	require.Equal(t, 1, n)
	_, err = s.Get(ctx, "t", "cancelled")
	require.ErrorIs(t, err, ErrNotFound)
}
