package store

import (
	"testing"

	"github.com/stretchr/testify/require"
)

// A burst is not read as a whole.
func TestCountsReadNoMoreThanIsNeeded(t *testing.T) {
	each(t, func(t *testing.T, s *fixture) {
		for i := range 5 {
			_, err := s.db.ExecContext(s.ctx, "INSERT INTO tasks (seq, ident, slot, pos, lane, due, state, attempt, replay, version, created, topic, id, body) VALUES (?, ?, 1, ?, 0, 0, 0, 0, 0, -1, 0, '', '', '')",
				i, []byte{15: byte(i)}, 100+i)
			require.NoError(t, err)
		}
		for most, want := range map[int]int64{2: 3, 10: 5} {
			out, err := s.counts(s.ctx, []int{1}, []int64{99, 9000}, most)
			require.NoError(t, err)
			require.Equal(t, []int64{want}, out)
		}
	})
}
