package scanner

import (
	"testing"

	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/notyet/notyet/schemas"
)

// A record that is too large becomes a small dead letter, whose reason says where the rest is.
func TestDecodeKeepsAPartOfALargeRecord(t *testing.T) {
	d := newDecoder(Config{}.withDefaults(), nil, nil)
	r := ask("a", 1)
	r.Offset, r.Headers = 7, append(r.Headers, kgo.RecordHeader{Key: "zeros", Value: make([]byte, 20<<20)})
	c, ok := d.decode(3, r)
	require.True(t, ok)
	require.NotNil(t, c.Rejected)
	require.Equal(t, "a", c.Rejected.TaskID)
	require.Regexp(t, `^record headers have \d+ bytes: send at most 65536, .* \(\d+ of its \d+ bytes are kept, the rest is in the intake: notyet\.intake/1/7\)$`, c.Rejected.Reason)
	require.LessOrEqual(t, len(c.Rejected.Body), schemas.MaxRejectedBytes)

	r = ask("a", 1, "notyet-x", "1")
	c, _ = d.decode(3, r)
	require.NotContains(t, c.Rejected.Reason, "kept")
}
