package intake

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestWhyASourceStands(t *testing.T) {
	each(t, func(t *testing.T, s *fixture) {
		s.do(s.schedule("a"))
		require.Empty(t, current(t, s).Stands)
		require.NoError(t, s.Stands(s.ctx, s.source.ID, 1, "no room"))
		require.Equal(t, "no room", current(t, s).Stands)
		require.NoError(t, s.Stands(s.ctx, s.source.ID, 0, "said too late"))
		require.Equal(t, "no room", current(t, s).Stands)
		require.NoError(t, s.Stands(s.ctx, s.source.ID, 1, strings.Repeat("x", 5000)))
		require.Len(t, current(t, s).Stands, maxStands)
		s.do(s.schedule("b"))
		require.Empty(t, current(t, s).Stands, "it has moved since")
	})
}
