package sendlog

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// fill appends about n bytes that do not compress well, and has them written to tables, where their size is known.
func fill(t *testing.T, l *Log, seq *uint64, n int) {
	t.Helper()
	for written := 0; written < n; {
		var intents []Intent
		for range 2000 {
			*seq++
			intents = append(intents, intent(int64(*seq*0x9e3779b97f4a7c15)))
		}
		if err := l.AppendIntents(t.Context(), intents); err != nil {
			require.ErrorIs(t, err, ErrFull)
			return
		}
		written += 2000 * 60
		require.NoError(t, l.db.Flush())
	}
}

// The log keeps within its bound by dropping what is oldest; what is younger than an hour stays, and if there is too much of it,
// no intent is taken until some of it is older. Outcomes are always taken.
func TestBoundInBytes(t *testing.T) {
	const most = 4 << 20
	c := newClock()
	dir := t.TempDir()
	l := mustOpen(t, dir, Config{Now: c.Now, MaxBytes: most, FullAgainEvery: time.Millisecond})
	var seq uint64
	for range 5 {
		fill(t, l, &seq, most/2)
		require.NoError(t, l.Full())
		c.forward(2 * time.Hour)
	}
	require.LessOrEqual(t, l.Bytes(), int64(most+most/8))
	first, err := readFirst(l.db)
	require.NoError(t, err)
	require.Greater(t, first, uint64(1), "the oldest are gone")
	kept := 0
	require.NoError(t, l.Replay(t.Context(), epoch, func(Entry) error { kept++; return nil }))
	require.Positive(t, kept)
	require.Less(t, kept, int(seq))

	fill(t, l, &seq, 20*most)
	require.ErrorIs(t, l.Full(), ErrFull, "all of it is too young")
	require.ErrorIs(t, l.AppendIntents(t.Context(), []Intent{intent(1)}), ErrFull)
	require.NoError(t, l.AppendOutcomes(t.Context(), []Outcome{outcome(1)}), "what was sent is noted")
	require.Less(t, diskUsage(t, dir), int64(8*most))

	c.forward(2 * time.Hour)
	require.Eventually(t, func() bool { return l.Full() == nil }, time.Minute, time.Millisecond, "time makes room")
	require.NoError(t, l.AppendIntents(t.Context(), []Intent{intent(2)}))
}
