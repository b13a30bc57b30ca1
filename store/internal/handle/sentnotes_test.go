package handle

import (
	"testing"

	"github.com/stretchr/testify/require"
)

func TestSentNotes(t *testing.T) {
	day := sentNotesFor.Milliseconds()
	n := SentNotes("").With(map[int64]int32{7: 1, 1 << 60: 3, -5: 2}, 0)
	for seq, number := range map[int64]int32{-5: 2, 7: 1, 1 << 60: 3} {
		require.True(t, n.Beyond(seq, number-1), seq)
		require.False(t, n.Beyond(seq, number), "the row knows of the attempt: %d", seq)
	}
	require.False(t, n.Beyond(8, 0))
	require.False(t, SentNotes("").Beyond(7, 0))

	n = n.With(map[int64]int32{7: 4, 1 << 60: 1}, day-1)
	require.True(t, n.Beyond(7, 3))
	require.True(t, n.Beyond(1<<60, 2), "the highest counts")
	require.True(t, n.Beyond(-5, 1))
	n = n.With(map[int64]int32{9: 1}, day)
	require.False(t, n.Beyond(-5, 1), "it is old")
	require.True(t, n.Beyond(7, 3))
}
