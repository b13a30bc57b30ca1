package scanner

import (
	"errors"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// A request that cannot be decided is found by every look. It is not tried twenty times a second.
func TestResolvePause(t *testing.T) {
	more := [16]byte{1}
	require.Equal(t, resolveBusy, resolvePause(1, [16]byte{}, nil))
	require.Equal(t, 50*time.Millisecond, resolvePause(0, more, nil))
	require.Equal(t, resolveIdle, resolvePause(0, [16]byte{}, nil))
	require.Equal(t, resolveIdle, resolvePause(1, more, errors.New("damaged")))
}
