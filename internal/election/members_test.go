package election

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/zap"
)

func TestMembersAreSeenFromOutside(t *testing.T) {
	onBoth(t, func(e *ensemble) {
		ask := func(root string) []string {
			ctx, cancel := context.WithTimeout(e.t.Context(), patience)
			defer cancel()
			ids, err := Members(ctx, Config{Servers: []string{e.server}, Root: root}, zap.NewNop())
			require.NoError(e.t, err)
			return ids
		}
		require.Empty(e.t, ask(e.root+"/nobody"), "nobody was ever here")
		b, a := e.start("b"), e.start("a")
		require.Eventually(e.t, func() bool { return len(ask(e.root)) == 2 }, patience, 10*time.Millisecond)
		require.Equal(e.t, []string{"a", "b"}, ask(e.root))
		a.leave()
		require.Equal(e.t, []string{"b"}, ask(e.root))
		b.leave()
		require.Empty(e.t, ask(e.root))
	})
}

func TestMembersWithoutAnEnsemble(t *testing.T) {
	t.Parallel()
	ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
	defer cancel()
	_, err := Members(ctx, Config{Servers: []string{"127.0.0.1:1"}}, zap.NewNop())
	require.ErrorContains(t, err, "asking the ensemble who is alive")
}
