package console

import (
	"testing"

	"github.com/stretchr/testify/require"
)

// Two ids that differ in what no page shows would look the same to whoever confirms a change.
func TestNothingIsInvisible(t *testing.T) {
	for text, want := range map[string]string{
		"plain ü 漢字 😀 a\u00a0b": "plain ü 漢字 😀 a\u00a0b",
		"a\nb\x1b\x7f":          `a\u000ab\u001b\u007f`,
		"a\u202eb\u200b\u2066":  `a\u202eb\u200b\u2066`,
		"a\u061cb":              `a\u061cb`, // turns the direction
		"a\u2060b\ufeff":        `a\u2060b\ufeff`,
		"a\u0085b\u2028":        `a\u0085b\u2028`,
		"a\U000e0041":           `a\ue0041`, // a tag: letters that nobody sees
		"\xff":                  "\uFFFD",
	} {
		require.Equal(t, want, visible(text))
	}
}
