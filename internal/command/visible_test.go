package command

import (
	"bytes"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestVisibleKeepsWhatIsVisible(t *testing.T) {
	var out bytes.Buffer
	v := Visible(&out)
	for _, b := range []byte("Grüße\t日本 😀\n") { // byte by byte: characters come in parts
		n, err := v.Write([]byte{b})
		require.NoError(t, err)
		require.Equal(t, 1, n)
	}
	_, err := v.Write([]byte("\xff|\xe2\x82"))
	require.NoError(t, err)
	_, err = v.Write([]byte("x"))
	require.NoError(t, err)
	require.Equal(t, "Grüße\t日本 😀\n\uFFFD|\uFFFD\uFFFDx", out.String())
}
