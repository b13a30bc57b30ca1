package intake

import (
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/notyet/notyet/schemas"
	"github.com/notyet/notyet/store/letters"
	"github.com/notyet/notyet/task"
)

func TestRetireDead(t *testing.T) {
	each(t, func(t *testing.T, s *fixture) {
		die := func(n int, prefix string) {
			var records []any
			for i := range n {
				records = append(records, &task.DeadLetter{Kind: schemas.KindDead, Topic: target, TaskID: fmt.Sprint(prefix, i), Reason: "r", Body: make([]byte, 1000)})
			}
			s.do(records...)
		}
		die(2*letters.Bite+10, "old")
		s.now += 1000
		die(5, "young")
		_, bytes, err := s.dead.Measure(s.ctx)
		require.NoError(t, err)
		require.Positive(t, bytes)
		total := 0
		for more, bites := true, 0; more; bites++ {
			var n int
			n, more, err = s.dead.Retire(s.ctx, s.now)
			require.NoError(t, err)
			require.LessOrEqual(t, n, letters.Bite)
			require.Less(t, bites, 4)
			total += n
		}
		require.Equal(t, 2*letters.Bite+10, total)
		require.Equal(t, 5, s.count("dead_letters"), "one that died at the time, or after it, stays")
	})
}
