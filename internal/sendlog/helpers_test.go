package sendlog

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/zap"
)

var epoch = time.UnixMilli(1_790_000_000_000)

func mustOpen(t *testing.T, dir string, cfg Config) *Log {
	t.Helper()
	l, err := Open(dir, cfg, zap.NewNop())
	require.NoError(t, err)
	t.Cleanup(func() { _ = l.Close() })
	return l
}

// clock is set by tests, so that "since" needs no waiting. The committer reads it
// whenever it likes.
type clock struct{ ms atomic.Int64 }

func newClock() *clock {
	c := &clock{}
	c.set(epoch)
	return c
}

func (c *clock) Now() time.Time          { return time.UnixMilli(c.ms.Load()) }
func (c *clock) set(to time.Time)        { c.ms.Store(to.UnixMilli()) }
func (c *clock) forward(d time.Duration) { c.ms.Add(d.Milliseconds()) }

func intent(seq int64) Intent {
	return Intent{
		Seq: seq, Attempt: 1, Slot: int32(seq % 64), Epoch: 7, Due: epoch.UnixMilli() + seq,
		Topic: "orders.due", ID: fmt.Sprintf("order-%d", seq), BodyHash: uint64(seq) * 0x9e3779b97f4a7c15,
	}
}

func proof(seq int64) Proof {
	in := intent(seq)
	return Proof{SubjectOf(seq, in.Topic, in.ID, in.BodyHash), 1}
}

func outcome(seq int64) Outcome {
	return Outcome{Seq: seq, Attempt: 1, Acked: true, Partition: int32(seq % 8), Offset: seq, At: epoch.UnixMilli()}
}

// appendOne writes one batch: an intent per seq.
func appendOne(t *testing.T, l *Log, seqs ...int64) {
	t.Helper()
	var intents []Intent
	for _, seq := range seqs {
		intents = append(intents, intent(seq))
	}
	require.NoError(t, l.AppendIntents(t.Context(), intents))
}

// replayed returns the seqs of all intents from a moment on.
func replayed(t *testing.T, l *Log, from time.Time) ([]int64, error) {
	t.Helper()
	var seqs []int64
	err := l.Replay(t.Context(), from, func(e Entry) error {
		if e.Intent != nil {
			require.Equal(t, intent(e.Intent.Seq), *e.Intent)
			seqs = append(seqs, e.Intent.Seq)
		}
		return nil
	})
	return seqs, err
}

// copyDir is what a kill -9 leaves: the files as they are, and no lock.
func copyDir(t *testing.T, from string) string {
	t.Helper()
	to := t.TempDir()
	require.NoError(t, os.CopyFS(to, os.DirFS(from)))
	return to
}

// newest returns the last of the files in dir/db with that extension.
func newest(t *testing.T, dir, ext string) string {
	t.Helper()
	files, err := filepath.Glob(filepath.Join(dir, "db", "*"+ext))
	require.NoError(t, err)
	require.NotEmpty(t, files)
	return files[len(files)-1]
}

func diskUsage(t *testing.T, dir string) (total int64) {
	t.Helper()
	require.NoError(t, filepath.WalkDir(dir, func(_ string, e fs.DirEntry, err error) error {
		if err != nil || e.IsDir() {
			return err
		}
		info, err := e.Info()
		if errors.Is(err, fs.ErrNotExist) { // it went since the directory was read
			return nil
		}
		require.NoError(t, err)
		total += info.Size()
		return nil
	}))
	return total
}

// every wants all tasks.
func every(int64) bool { return true }
