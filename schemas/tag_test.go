package schemas

import (
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"
)

func TestTags(t *testing.T) {
	require.Empty(t, Tags(""))
	require.Equal(t, []string{"a"}, Tags("a"))
	require.Equal(t, []string{"a", "b"}, Tags("b,a,b"), "each once")
	require.True(t, HasTag("ab,b", "b"))
	require.False(t, HasTag("ab,b", "a"), "no part of a tag is one")
	require.False(t, HasTag("", ""))
	for text, valid := range map[string]bool{"a": true, "Z9-_.:": true, "": false, "a,b": false, "a b": false, "@": false, "[": false, "{": false, "`": false} {
		require.Equal(t, valid, ValidTag(text), "%q", text)
	}
}

// The tag is found without decoding the body, wherever the settings have it.
func TestBodyTag(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		s := anySettings(t)
		b := EncodeBody(nil, anyBytes(t, "key"), anyBytes(t, "value"), anyHeaders(t), s)
		require.Equal(t, s.Tag, BodyTag(b))
		require.Contains(t, []string{"", s.Tag}, BodyTag(b[:rapid.IntRange(0, len(b)).Draw(t, "cut")]))
	})
	raw := scheduled(HeaderTag, "a")
	require.Empty(t, BodyTag(EncodeRejected(raw)), "a rejected request has no tag")
}
