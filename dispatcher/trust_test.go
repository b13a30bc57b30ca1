package dispatcher

import (
	"testing"

	"github.com/stretchr/testify/require"
)

func TestSuspensionLastsUntilALaterLook(t *testing.T) {
	var s suspension
	require.False(t, s.active())
	require.True(t, s.lose())
	require.False(t, s.lose(), "known already")
	look := s.look()
	require.False(t, s.lose(), "again, while somebody looks")
	s.end(look)
	require.True(t, s.active(), "that look may have been too early")
	second := s.look()
	s.end(second)
	require.False(t, s.active())
	s.end(look) // a slow one
	require.False(t, s.active())
	require.True(t, s.lose())
	require.True(t, s.active())
}
