package sendlog

import (
	"context"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/cockroachdb/pebble/v2/vfs/errorfs"
	"github.com/stretchr/testify/require"
	"go.uber.org/zap"
)

// failing is a disk that can be told to refuse writes of some files.
type failing struct {
	suffix string
	kinds  map[errorfs.OpKind]bool
	on     atomic.Bool
	hits   atomic.Int64
}

func (f *failing) String() string { return "full" }

func (f *failing) MaybeError(op errorfs.Op) error {
	if f.on.Load() && f.kinds[op.Kind] && strings.HasSuffix(op.Path, f.suffix) {
		f.hits.Add(1)
		return syscall.ENOSPC
	}
	return nil
}

var allWrites = map[errorfs.OpKind]bool{
	errorfs.OpFileWrite: true, errorfs.OpFileWriteAt: true, errorfs.OpFileSync: true,
	errorfs.OpFileSyncData: true, errorfs.OpFileSyncTo: true, errorfs.OpFileFlush: true, errorfs.OpCreate: true,
	errorfs.OpFilePreallocate: true, errorfs.OpReuseForWrite: true,
}

// The append that meets the full disk, those that wait with it and those that
// come later: all fail, soon, with the cause. What was acknowledged stays.
func TestFullDiskBreaksTheLogAndLosesNothing(t *testing.T) {
	for name, kinds := range map[string]map[errorfs.OpKind]bool{
		"writes fail": allWrites,
		"syncs fail":  {errorfs.OpFileSync: true, errorfs.OpFileSyncData: true, errorfs.OpFileSyncTo: true},
	} {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			disk := &failing{suffix: ".log", kinds: kinds}
			l := mustOpen(t, dir, Config{fs: errorfs.Wrap(vfs.Default, disk)})
			appendOne(t, l, 1)
			appendOne(t, l, 2)

			disk.on.Store(true)
			ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
			defer cancel()
			var wg sync.WaitGroup
			for i := range int64(20) {
				wg.Go(func() {
					err := l.AppendIntents(ctx, []Intent{intent(100 + i)})
					if !isBroken(err) {
						t.Errorf("want broken by a full disk: %v", err)
					}
				})
			}
			wg.Wait()
			require.NotZero(t, disk.hits.Load(), "the fault did not strike")
			disk.on.Store(false)
			require.True(t, isBroken(l.AppendOutcomes(ctx, []Outcome{outcome(1)})), "for good")
			require.True(t, isBroken(l.Close()))

			after := mustOpen(t, copyDir(t, dir), Config{})
			seqs, err := replayed(t, after, time.Time{})
			require.NoError(t, err)
			require.Equal(t, []int64{1, 2}, seqs[:2])
		})
	}
}

func isBroken(err error) bool {
	return err != nil && strings.Contains(err.Error(), ErrBroken.Error()) && strings.Contains(err.Error(), "no space left")
}

// Tables cannot be written, the write-ahead log can: appends go on until pebble
// stalls them, and then end with their context. When there is space again, they
// go on, and nothing is missing.
func TestNoSpaceForTablesStallsAndRecovers(t *testing.T) {
	disk := &failing{suffix: ".sst", kinds: allWrites}
	l := mustOpen(t, t.TempDir(), Config{fs: errorfs.Wrap(vfs.Default, disk)})
	disk.on.Store(true)
	intents := make([]Intent, 20_000)
	for i := range intents {
		intents[i] = intent(int64(i))
	}
	var stalled error
	for i := 0; stalled == nil || disk.hits.Load() == 0; i++ {
		require.Less(t, i, 1000, "never stalled")
		ctx, cancel := context.WithTimeout(t.Context(), 5*time.Second)
		stalled = l.AppendIntents(ctx, intents)
		cancel()
	}
	require.ErrorIs(t, stalled, context.DeadlineExceeded)
	require.NotZero(t, disk.hits.Load())

	disk.on.Store(false)
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	require.NoError(t, l.AppendIntents(ctx, []Intent{intent(1)}))
	require.NoError(t, l.Replay(ctx, time.Time{}, func(Entry) error { return nil }))
}

func TestFullDiskOnOpen(t *testing.T) {
	disk := &failing{kinds: allWrites}
	disk.on.Store(true)
	done := make(chan error, 1)
	go func() {
		_, err := Open(t.TempDir(), Config{fs: errorfs.Wrap(vfs.NewMem(), disk)}, zap.NewNop())
		done <- err
	}()
	select {
	case err := <-done:
		require.ErrorContains(t, err, "no space left")
	case <-time.After(time.Minute):
		t.Fatal("Open hangs")
	}
}
