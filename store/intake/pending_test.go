package intake

import (
	"fmt"
	"testing"

	"github.com/notyet/notyet/store/look"
	"github.com/stretchr/testify/require"
)

func TestCountPending(t *testing.T) {
	each(t, func(t *testing.T, s *fixture) {
		s.own()
		for i := range 5 {
			s.do(s.schedule(fmt.Sprint(i)))
		}
		due := s.row("0").Pos
		count := func(topic string, after, most int64) look.Bounded {
			t.Helper()
			n, err := look.New(s.Store).CountPending(s.ctx, topic, after, most)
			require.NoError(t, err)
			return n
		}
		require.Equal(t, look.Bounded{N: 5}, count(target, due-1, 10))
		require.Equal(t, look.Bounded{N: 5}, count(target, due-1, 5))
		require.Equal(t, look.Bounded{N: 4, More: true}, count(target, due-1, 4))
		require.Equal(t, look.Bounded{}, count(target, due, 10), "they do not come later than that")
		require.Equal(t, look.Bounded{}, count("other", due-1, 10))

		require.NotEmpty(t, s.do(s.cancel("0")))
		s.deliver(due)
		require.Equal(t, look.Bounded{}, count(target, due, 10), "what has ended is not behind now")
	})
}

func TestOldestOverdueOfATarget(t *testing.T) {
	each(t, func(t *testing.T, s *fixture) {
		s.own()
		s.do(s.schedule("a"))
		for i := range 20 {
			s.do(s.schedule(fmt.Sprint("later", i), in(5_000_000_000)))
		}
		due, later := s.row("a").Pos, s.row("later0").Pos
		require.Greater(t, later, due)
		look := func(before int64, perSlot int) map[string]int64 {
			t.Helper()
			out, others, err := look.New(s.Store).OldestOverdue(s.ctx, []string{"none", target}, before, perSlot)
			require.NoError(t, err)
			require.Zero(t, others)
			none, others, err := look.New(s.Store).OldestOverdue(s.ctx, []string{"none"}, before, perSlot)
			require.NoError(t, err)
			require.Empty(t, none)
			require.Equal(t, out[target], others, "of the targets that are not named")
			return out
		}
		require.Empty(t, look(due, 10), "due at that instant is not overdue")
		require.Equal(t, map[string]int64{target: due}, look(later+1, 10))
		require.Equal(t, map[string]int64{target: due}, look(later+1, 1), "the first of each slot suffices")
		s.claim(due)
		require.Equal(t, map[string]int64{target: due}, look(later+1, 10), "claimed is not delivered")
		s.settle(due)
		require.Equal(t, map[string]int64{target: later}, look(later+1, 10))
	})
}
