package intake

import (
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/notyet/notyet/schemas"
	"github.com/notyet/notyet/store/letters"
	"github.com/notyet/notyet/task"
	"github.com/notyet/notyet/test/lettertest"
)

// A page is bounded in letters and in what they carry, and holds at least one.
func TestDeadPageIsBoundedInBytes(t *testing.T) {
	each(t, func(t *testing.T, s *fixture) {
		for i, size := range []int{1 << 20, 8 << 20, 8 << 20, 1, 1} {
			s.letter(task.DeadLetter{Kind: schemas.KindRejected, Topic: "orders", TaskID: fmt.Sprint(i), Body: make([]byte, size)})
		}
		all, err := lettertest.All(s.ctx, s.dead, letters.Filter{})
		require.NoError(t, err)
		page := func(after int64, limit int) (n int, more bool) {
			page, err := s.dead.SelectWithBodies(s.ctx, letters.Filter{After: after, Limit: limit})
			require.NoError(t, err)
			return len(page.IDs), page.Next > 0
		}
		for _, c := range []struct {
			first, limit, n int
			more            bool
		}{{0, 100, 3, true}, {1, 100, 2, true}, {2, 100, 3, false}, {3, 1, 1, true}, {3, 2, 2, false}, {4, 1, 1, false}} {
			n, more := page(all[c.first].ID-1, c.limit)
			require.Equal(t, []any{c.n, c.more}, []any{n, more}, "%+v", c)
		}
		n, more := page(all[4].ID, 10)
		require.Zero(t, n)
		require.False(t, more)
	})
}
