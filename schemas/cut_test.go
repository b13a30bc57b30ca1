package schemas

import (
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/stretchr/testify/require"
)

func TestCutUTF8(t *testing.T) {
	for _, c := range []struct {
		text string
		n    int
		want string
	}{
		{"", 0, ""},
		{"abc", 3, "abc"},
		{"abcd", 3, "abc"},
		{"aé", 3, "aé"},
		{"aéb", 2, "a"},
		{"€", 3, "€"},
		{"€", 2, ""},
		{"€", 1, ""},
		{"€", 0, ""},
		{"a😀b", 4, "a"},
		{"a😀b", 5, "a😀"},
		{"\x80\x80\x80\x80\x80\x80", 5, "\x80\x80\x80\x80\x80"}, // not UTF-8: cut where n says
	} {
		require.Equal(t, c.want, CutUTF8(c.text, c.n), "%q to %d", c.text, c.n)
		require.Equal(t, c.want, string(CutUTF8([]byte(c.text), c.n)), "%q to %d", c.text, c.n)
	}
}

// However long the text and wherever it is cut, what was UTF-8 stays UTF-8, and loses less than a character more than it must.
func TestCutUTF8SplitsNoCharacter(t *testing.T) {
	text := strings.Repeat("aé€😀", 5)
	for n := range len(text) + 2 {
		got := CutUTF8(text, n)
		require.True(t, utf8.ValidString(got), n)
		require.True(t, strings.HasPrefix(text, got), n)
		require.LessOrEqual(t, len(got), n)
		require.Greater(t, len(got)+utf8.UTFMax, min(n, len(text)), n)
	}
}
