package wrap

import (
	"io"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestErr(t *testing.T) {
	require.NoError(t, Err(nil, "reading %d tasks", 3))
	err := Err(io.EOF, "reading %d tasks", 3)
	require.EqualError(t, err, "reading 3 tasks: EOF")
	require.ErrorIs(t, err, io.EOF)
}
