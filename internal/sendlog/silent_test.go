package sendlog

import (
	"context"
	"sync/atomic"
	"testing"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/cockroachdb/pebble/v2/vfs/errorfs"
	"github.com/stretchr/testify/require"
	"go.uber.org/zap"
)

// TestSilentDiskBreaksTheLog: an append under which the disk never answers ends, and so do later ones and Close.
func TestSilentDiskBreaksTheLog(t *testing.T) {
	silent, reached := make(chan struct{}), make(chan struct{}, 1)
	defer close(silent)
	l, err := Open(t.TempDir(), Config{Patience: 100 * time.Millisecond, Disk: func(write func() error) error {
		reached <- struct{}{}
		<-silent
		return write()
	}}, zap.NewNop())
	require.NoError(t, err)
	err = l.AppendOutcomes(t.Context(), []Outcome{{Seq: 1, Attempt: 1}})
	require.ErrorIs(t, err, ErrBroken)
	require.ErrorContains(t, err, "has not answered for 100ms")
	require.Len(t, reached, 1)
	require.ErrorIs(t, l.AppendOutcomes(t.Context(), []Outcome{{Seq: 2, Attempt: 1}}), ErrBroken)
	require.ErrorIs(t, l.Close(), ErrBroken)
}

// TestCloseDoesNotWaitForASilentDisk: nobody waits for the append any more.
func TestCloseDoesNotWaitForASilentDisk(t *testing.T) {
	silent, reached := make(chan struct{}), make(chan struct{}, 1)
	defer close(silent)
	l, err := Open(t.TempDir(), Config{Patience: 15 * time.Second, Disk: func(write func() error) error {
		reached <- struct{}{}
		<-silent
		return write()
	}}, zap.NewNop())
	require.NoError(t, err)
	ctx, cancel := context.WithCancel(t.Context())
	go func() { <-reached; cancel() }()
	require.ErrorIs(t, l.AppendOutcomes(ctx, []Outcome{{Seq: 1, Attempt: 1}}), context.Canceled)
	require.ErrorIs(t, l.Close(), ErrBroken)
}

// TestCloseEndsWhereClosingTheFilesHangs: everything is written, and the disk falls silent while pebble closes its files.
func TestCloseEndsWhereClosingTheFilesHangs(t *testing.T) {
	silent, reached := make(chan struct{}), make(chan struct{}, 100)
	defer close(silent)
	var closing atomic.Bool
	disk := errorfs.Wrap(vfs.NewMem(), errorfs.InjectorFunc(func(errorfs.Op) error {
		if closing.Load() {
			reached <- struct{}{}
			<-silent
		}
		return nil
	}))
	l, err := Open(t.TempDir(), Config{Patience: 5 * time.Second, fs: disk}, zap.NewNop())
	require.NoError(t, err)
	require.NoError(t, l.AppendOutcomes(t.Context(), []Outcome{{Seq: 1, Attempt: 1}}))
	closing.Store(true)
	require.ErrorIs(t, l.Close(), ErrBroken)
	require.NotEmpty(t, reached)
	require.ErrorIs(t, l.Close(), ErrBroken)
}
