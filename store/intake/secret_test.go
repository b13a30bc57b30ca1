package intake

import (
	"fmt"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func TestSecret(t *testing.T) {
	eachAtOnce(t, func(t *testing.T, s *fixture) {
		secrets := make(chan [16]byte)
		var before [16]byte
		for i := range 50 { // names
			for range 4 { // processes that ask at once for the first time
				go func() {
					secret, err := s.Secret(s.ctx, fmt.Sprint(i))
					assert.NoError(t, err)
					secrets <- secret
				}()
			}
			first := <-secrets
			for range 3 {
				require.Equal(t, first, <-secrets)
			}
			require.NotZero(t, first)
			require.NotEqual(t, before, first)
			require.NotEqual(t, first[:8], first[8:])
			before = first
		}
	})
}
