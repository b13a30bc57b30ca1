package intake

import (
	"testing"
	"time"

	"github.com/notyet/notyet/store/look"
	"github.com/stretchr/testify/require"
)

func TestOverdue(t *testing.T) {
	each(t, func(t *testing.T, s *fixture) {
		var next int64
		late := func(before int64) (unclaimed, unsettled []int) {
			behind, err := look.New(s.Store).Overdue(s.ctx, before)
			require.NoError(t, err)
			next = behind.Next
			for _, x := range behind.Unclaimed {
				unclaimed = append(unclaimed, x.Slot)
			}
			for _, x := range behind.Unsettled {
				unsettled = append(unsettled, x.Slot)
			}
			return unclaimed, unsettled
		}
		s.do(s.schedule("a"), s.schedule("b", in(time.Hour)))
		slot, due := s.row("a").Slot, s.row("a").Pos
		s.own()
		unclaimed, unsettled := late(due)
		require.Empty(t, unclaimed, "it is not due yet")
		require.Empty(t, unsettled)
		require.Equal(t, due, next)

		unclaimed, unsettled = late(due + 1)
		require.Equal(t, []int{slot}, unclaimed)
		require.Empty(t, unsettled)

		s.claim(due + 100)
		unclaimed, unsettled = late(due + 1)
		require.Empty(t, unclaimed)
		require.Equal(t, []int{slot}, unsettled)
		require.Equal(t, due, next, "claimed is not settled")
		behind, err := look.New(s.Store).Overdue(s.ctx, due+time.Hour.Milliseconds()*2)
		require.NoError(t, err)
		require.Equal(t, "me", behind.Unclaimed[0].Owner)

		s.settle(due + 100)
		unclaimed, unsettled = late(due + 1000)
		require.Empty(t, unclaimed)
		require.Empty(t, unsettled)
		require.Equal(t, s.row("b").Pos, next)
	})
}
