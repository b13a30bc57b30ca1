package main

import (
	"testing"

	"github.com/stretchr/testify/require"
)

// TestMutantsOfEachKind: the one that lives is left by the sample's tests.
func TestMutantsOfEachKind(t *testing.T) {
	s, err := newSurvey(t.TempDir(), "./testdata/sample", nil)
	require.NoError(t, err)
	require.NoError(t, s.test("./testdata/sample"))
	var lives, missed []string
	kinds := map[string]bool{}
	for i, m := range s.mutants {
		kinds[m.what] = true
		switch {
		case !s.passed[i]:
			missed = append(missed, m.what)
		case s.noticed[i] == "":
			lives = append(lives, m.place+" "+m.what)
		}
	}
	require.Equal(t, []string{"case n > 100: // no test asks for 100 and 101 > to >="}, lives)
	require.Equal(t, []string{"% to *", "== to !="}, missed)
	for _, what := range []string{"< to >=", "< to <=", "++ to --", "<= to >", "<= to <", "> to <=", "> to >=", "continue to break", "break to continue", "+= to -=", "== to !=", "/ to *", "* to /", "|| to &&", "&& to ||", "the opposite", "without -", "- to +"} {
		require.True(t, kinds[what], what)
	}
	require.ErrorContains(t, s.report(nil, 100), "and 100 % are wanted")
	require.NoError(t, s.report(map[string]string{"testdata/sample/sample.go: case n > 100: // no test asks for 100 and 101: > to >=": "left"}, 100))
}
