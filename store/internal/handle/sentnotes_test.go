package handle

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/notyet/notyet/task"
)

func TestSentNotes(t *testing.T) {
	day := sentNotesFor.Milliseconds()
	have := func(n SentNotes, seq int64, attempt int) bool { return n.Have(&task.Task{Seq: seq, Attempt: attempt}) }
	n := SentNotes("").With(map[int64]int32{7: 1, 1 << 60: 3, -5: 2}, 0)
	for seq, number := range map[int64]int{-5: 2, 7: 1, 1 << 60: 3} {
		require.True(t, have(n, seq, number-1), seq)
		require.False(t, have(n, seq, number), "the row knows of the attempt: %d", seq)
	}
	require.False(t, have(n, 8, 0))
	require.False(t, have("", 7, 0))

	n = n.With(map[int64]int32{7: 4, 1 << 60: 1}, day-1)
	require.True(t, have(n, 7, 3))
	require.True(t, have(n, 1<<60, 2), "the highest counts")
	require.True(t, have(n, -5, 1))
	n = n.With(map[int64]int32{9: 1}, day)
	require.False(t, have(n, -5, 1), "it is old")
	require.True(t, have(n, 7, 3))
}
