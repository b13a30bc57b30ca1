package task

import (
	"math"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestSeq(t *testing.T) {
	for _, c := range []struct {
		source int
		offset int64
	}{{2, 0}, {16, 1}, {17, 1<<offsetBits - 1}, {1<<15 - 1, 1<<offsetBits - 1}} {
		seq := Seq(c.source, c.offset)
		require.Positive(t, seq)
		source, offset := SplitSeq(seq)
		require.Equal(t, c.source, source)
		require.Equal(t, c.offset, offset)
	}
	require.Less(t, Seq(17, 1<<offsetBits-1), Seq(18, 0), "sources do not overlap")
}

func TestSendNumber(t *testing.T) {
	seen := map[int32]bool{}
	for _, replay := range []int{0, 1, 2, 127} {
		for _, attempt := range []int{1, 2, 3, 1000, 1<<replayShift - 1} {
			n := SendNumber(replay, attempt)
			require.Positive(t, n)
			require.False(t, seen[n], "%d, %d", replay, attempt)
			seen[n] = true
			gotReplay, gotAttempt := SplitSendNumber(n)
			require.Equal(t, replay, gotReplay)
			require.Equal(t, attempt, gotAttempt)
		}
	}
	require.Equal(t, int32(math.MaxInt32), SendNumber(127, 1<<replayShift-1))
}
