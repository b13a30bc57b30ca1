package store

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/zap/zaptest"

	"github.com/notyet/notyet/schemas"
)

func TestSmoke(t *testing.T) {
	ctx := context.Background()
	s, err := Open(ctx, Config{DSN: "sqlite:" + t.TempDir() + "/n.db"}, zaptest.NewLogger(t))
	require.NoError(t, err)
	require.ErrorIs(t, s.CheckMigrated(ctx), ErrNotMigrated)
	require.NoError(t, s.Migrate(ctx, 8))
	require.NoError(t, s.CheckMigrated(ctx))
	src, err := s.Source(ctx, "in", [16]byte{1}, 0, 0)
	require.NoError(t, err)
	now := time.Now().UnixMilli()
	req := &schemas.Request{Topic: "t", ID: "a", GivenID: true, Due: now + 10, Accepted: now, Version: -1, Key: []byte("k"), Value: []byte("v"), Settings: schemas.DefaultSettings()}
	got, err := s.Apply(ctx, Batch{Advance: []Advance{{src.ID, 0, 1}}, Changes: []Change{{Seq: Seq(src.ID, 0), Request: req}}}, now)
	require.NoError(t, err)
	require.Len(t, got.Added, 1)
	slot := got.Added[0].Slot
	before, err := s.Acquire(ctx, []int{slot}, 1, "me")
	require.NoError(t, err)
	require.Len(t, before, 1)
	next, err := s.Next(ctx, []int{slot})
	require.NoError(t, err)
	require.Equal(t, []SlotPos{{slot, now + 10}}, next)
	require.NoError(t, s.Claim(ctx, []int{slot}, 1, now+20))
	entries, err := s.Entries(ctx, []Range{{slot, 0, now + 20}})
	require.NoError(t, err)
	require.Len(t, entries, 1)
	tasks, err := s.Tasks(ctx, []int64{entries[0].Seq})
	require.NoError(t, err)
	require.Len(t, tasks, 1)
	v, err := s.Get(ctx, "t", "a")
	require.NoError(t, err)
	require.Equal(t, "claimed", v.State)
	res, err := s.Settle(ctx, []Done{{slot, 1, 0, now + 20, 1}}, nil, nil, now)
	require.NoError(t, err)
	require.Empty(t, res.Mismatch)
	v, err = s.Get(ctx, "t", "a")
	require.NoError(t, err)
	require.Equal(t, "delivered", v.State)
}
