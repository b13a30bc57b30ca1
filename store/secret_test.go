package store

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func TestSecret(t *testing.T) {
	each(t, func(t *testing.T, s *fixture) {
		secrets := make(chan [16]byte)
		for range 4 { // processes that ask at once for the first time
			go func() {
				secret, err := s.Secret(s.ctx, "a")
				assert.NoError(t, err)
				secrets <- secret
			}()
		}
		first := <-secrets
		for range 3 {
			require.Equal(t, first, <-secrets)
		}
		require.NotZero(t, first)
		other, err := s.Secret(s.ctx, "b")
		require.NoError(t, err)
		require.NotEqual(t, first, other)
		require.NotEqual(t, other[:8], other[8:])
	})
}
