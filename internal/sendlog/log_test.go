package sendlog

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/zap"
)

func TestWhatWasAppendedComesBackAfterReopening(t *testing.T) {
	dir := t.TempDir()
	l := mustOpen(t, dir, Config{})
	ctx := t.Context()
	appendOne(t, l, 1, 2, 3)
	failed := Outcome{Seq: 2, Attempt: 1, Partition: -1, Offset: -1, At: 5, Error: "MESSAGE_TOO_LARGE"}
	retried := Outcome{Seq: 2, Attempt: 2, Acked: true, Partition: 3, Offset: 1 << 40, At: 6}
	require.NoError(t, l.AppendOutcomes(ctx, []Outcome{outcome(1), failed}))
	require.NoError(t, l.AppendOutcomes(ctx, []Outcome{retried}))
	require.NoError(t, l.AppendIntents(ctx, nil), "nothing is no batch")
	require.NoError(t, l.AppendOutcomes(ctx, nil))

	check := func(l *Log) {
		var intents []Intent
		var outcomes []Outcome
		require.NoError(t, l.Replay(ctx, time.Time{}, func(e Entry) error {
			require.True(t, (e.Intent == nil) != (e.Outcome == nil))
			if e.Intent != nil {
				require.Empty(t, outcomes, "in the order of appending")
				intents = append(intents, *e.Intent)
			} else {
				outcomes = append(outcomes, *e.Outcome)
			}
			return nil
		}))
		require.Equal(t, []Intent{intent(1), intent(2), intent(3)}, intents)
		require.Equal(t, []Outcome{outcome(1), failed, retried}, outcomes)
		acked, err := l.Acked(ctx, time.Time{}, every)
		require.NoError(t, err)
		require.Equal(t, map[Proof]Outcome{proof(1): outcome(1)}, acked, "the retry has no intent")
		acked, err = l.Acked(ctx, time.Time{}, func(seq int64) bool { return seq == 1 })
		require.NoError(t, err)
		require.Equal(t, map[Proof]Outcome{proof(1): outcome(1)}, acked)
	}
	check(l)
	require.NoError(t, l.Close())
	require.NoError(t, l.Close())

	l = mustOpen(t, dir, Config{})
	check(l)
	appendOne(t, l, 4)
	seqs, err := replayed(t, l, time.Time{})
	require.NoError(t, err)
	require.Equal(t, []int64{1, 2, 3, 4}, seqs)
}

func TestSinceAndFrom(t *testing.T) {
	c := newClock()
	l := mustOpen(t, t.TempDir(), Config{Now: c.Now})
	for i := range int64(20) {
		c.set(epoch.Add(time.Duration(i) * time.Second))
		if i >= 10 && i < 15 {
			c.set(epoch) // the clock steps back for a while
		}
		appendOne(t, l, i)
		require.NoError(t, l.AppendOutcomes(t.Context(), []Outcome{outcome(i)}))
	}
	for _, from := range []int{-5, 0, 1, 5, 9, 16, 19, 20} {
		since := epoch.Add(time.Duration(from) * time.Second)
		seqs, err := replayed(t, l, since)
		require.NoError(t, err)
		acked, err := l.Acked(t.Context(), since, every)
		require.NoError(t, err)
		want := 20 - max(from, 0)
		require.Len(t, seqs, want, "from %d s", from)
		require.Len(t, acked, want, "since %d s", from)
	}
}

func TestReplayStopsWhenTold(t *testing.T) {
	l := mustOpen(t, t.TempDir(), Config{})
	appendOne(t, l, 1, 2)
	appendOne(t, l, 3)
	enough := errors.New("enough")
	calls := 0
	err := l.Replay(t.Context(), time.Time{}, func(Entry) error { calls++; return enough })
	require.ErrorIs(t, err, enough)
	require.Equal(t, 1, calls)

	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	require.ErrorIs(t, l.Replay(ctx, time.Time{}, func(Entry) error { return nil }), context.Canceled)
}

// Every batch once, and none out of the order in which its writer wrote it.
func TestConcurrentWriters(t *testing.T) {
	const writers, batches = 32, 50
	l := mustOpen(t, t.TempDir(), Config{})
	var wg sync.WaitGroup
	for w := range int64(writers) {
		wg.Go(func() {
			for b := range int64(batches) {
				if err := l.AppendIntents(t.Context(), []Intent{intent(w<<32 | b)}); err != nil {
					t.Errorf("writer %d: %v", w, err)
				}
			}
		})
	}
	wg.Wait()
	seqs, err := replayed(t, l, time.Time{})
	require.NoError(t, err)
	require.Len(t, seqs, writers*batches)
	var next [writers]int64
	for _, seq := range seqs {
		require.Equal(t, next[seq>>32], seq&0xffffffff)
		next[seq>>32]++
	}
}

func TestOneProcessAtATime(t *testing.T) {
	dir := t.TempDir()
	l := mustOpen(t, dir, Config{})
	_, err := Open(dir, Config{}, zap.NewNop())
	require.ErrorIs(t, err, ErrLocked)
	require.ErrorContains(t, err, dir)
	appendOne(t, l, 1)
	require.NoError(t, l.Close())
	mustOpen(t, dir, Config{})
}

func TestClosed(t *testing.T) {
	l := mustOpen(t, t.TempDir(), Config{})
	require.NoError(t, l.Close())
	require.ErrorIs(t, l.AppendIntents(t.Context(), []Intent{intent(1)}), ErrClosed)
	require.ErrorIs(t, l.AppendOutcomes(t.Context(), []Outcome{outcome(1)}), ErrClosed)
	require.ErrorIs(t, l.Replay(t.Context(), epoch, nil), ErrClosed)
	_, err := l.Acked(t.Context(), epoch, every)
	require.ErrorIs(t, err, ErrClosed)
}

func TestOpenRefusesNonsense(t *testing.T) {
	_, err := Open(t.TempDir(), Config{Retention: -1}, zap.NewNop())
	require.ErrorContains(t, err, "retention")
	_, err = Open("/dev/null/x", Config{}, zap.NewNop())
	require.ErrorContains(t, err, "/dev/null/x")
}

func TestPrune(t *testing.T) {
	c := newClock()
	dir := t.TempDir()
	l := mustOpen(t, dir, Config{Now: c.Now})
	for i := range int64(10) {
		c.set(epoch.Add(time.Duration(i) * time.Minute))
		appendOne(t, l, i)
	}
	require.NoError(t, l.prune(epoch), "nothing is older")
	require.NoError(t, l.prune(epoch.Add(4*time.Minute)))
	check := func(want ...int64) {
		t.Helper()
		seqs, err := replayed(t, l, time.Time{})
		require.NoError(t, err, "what was pruned is no gap")
		require.Equal(t, want, seqs)
	}
	check(4, 5, 6, 7, 8, 9)
	require.NoError(t, l.Close())
	l = mustOpen(t, dir, Config{Now: c.Now})
	check(4, 5, 6, 7, 8, 9)

	require.NoError(t, l.prune(c.Now().Add(time.Hour)), "everything")
	check()
	require.NoError(t, l.Close())
	l = mustOpen(t, dir, Config{Now: c.Now})
	check()
	appendOne(t, l, 10)
	check(10)
}

func TestRetentionPrunesByItself(t *testing.T) {
	c := newClock()
	dir := t.TempDir()
	l := mustOpen(t, dir, Config{Now: c.Now, Retention: 24 * time.Hour})
	for hour := range int64(100) {
		appendOne(t, l, hour)
		c.forward(time.Hour)
	}
	appendOne(t, l, 100)
	appendOne(t, l, 101) // the committer prunes before it takes the next
	seqs, err := replayed(t, l, time.Time{})
	require.NoError(t, err)
	require.EqualValues(t, 76, seqs[0])
	require.EqualValues(t, 101, seqs[len(seqs)-1])
	require.NoError(t, l.Close())

	c.forward(20 * time.Hour)
	l = mustOpen(t, dir, Config{Now: c.Now, Retention: 24 * time.Hour})
	appendOne(t, l, 102)
	seqs, err = replayed(t, l, time.Time{})
	require.NoError(t, err)
	require.EqualValues(t, 96, seqs[0], "on Open, too")
}

// Pruning must give the space back, not only hide what it held.
func TestPruneFreesSpace(t *testing.T) {
	c := newClock()
	dir := t.TempDir()
	l := mustOpen(t, dir, Config{Now: c.Now})
	big := make([]Intent, 1000)
	for i := range 200 {
		for j := range big {
			big[j] = intent(int64(i*1000 + j))
			big[j].ID = fmt.Sprintf("%x", uint64(i*1000+j)*0x9e3779b97f4a7c15) // does not compress well
		}
		require.NoError(t, l.AppendIntents(t.Context(), big))
		c.forward(time.Minute)
	}
	require.NoError(t, l.db.Flush())
	full := diskUsage(t, dir)
	require.Greater(t, full, int64(4<<20))
	require.NoError(t, l.prune(c.Now()))
	require.NoError(t, l.db.Flush())
	require.Eventually(t, func() bool { return diskUsage(t, dir) < full/4 }, 2*time.Minute, 10*time.Millisecond)
}

func TestExistingMakesNoLog(t *testing.T) {
	dir := t.TempDir()
	_, err := Open(dir, Config{Existing: true}, zap.NewNop())
	require.ErrorIs(t, err, ErrNoLog)
	require.ErrorIs(t, err, fs.ErrNotExist)
	made, err := os.ReadDir(dir)
	require.NoError(t, err)
	require.Empty(t, made)

	l := mustOpen(t, dir, Config{})
	appendOne(t, l, 1)
	_, err = Open(dir, Config{Existing: true}, zap.NewNop())
	require.ErrorIs(t, err, ErrLocked)
	require.NoError(t, l.Close())
	l = mustOpen(t, dir, Config{Existing: true})
	var seen int
	require.NoError(t, l.Replay(t.Context(), time.Time{}, func(Entry) error { seen++; return nil }))
	require.Equal(t, 1, seen)
}
