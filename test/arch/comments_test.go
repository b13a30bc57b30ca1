package arch

import (
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/stretchr/testify/require"
)

const (
	mostColumns  = 100 // of a comment on a line of its own; a tab is four
	mostPronouns = 6   // in 100 words
)

var (
	word = regexp.MustCompile(`[A-Za-z']+`)
	// pronoun is a word with a noun that a reader has to look for.
	pronoun = regexp.MustCompile(`(?i)^(it|its|itself|they|them|their|theirs|themselves|that|this|these|those|what|which|who|whom|whose|whoever|whatever)$`)
	// opening begins a sentence where a noun is expected.
	opening = regexp.MustCompile(`(^|[.!?] +)(What|That|Those|Whoever) `)
)

// Comments of the product are read by people who look for one thing: lines that fit, and sentences
// with nouns.
func TestCommentsAreEasyToRead(t *testing.T) {
	root := filepath.Join("..", "..")
	words, pronouns := map[string]int{}, map[string]int{}
	for _, s := range readTree(t, root) {
		if s.isTest() || within(s.dir(), "test") || within(s.dir(), "examples") {
			continue
		}
		text, err := os.ReadFile(filepath.Join(root, s.path))
		require.NoError(t, err)
		paragraph := ""
		for i, line := range strings.Split(string(text), "\n") {
			comment, yes := strings.CutPrefix(strings.TrimSpace(line), "//")
			if !yes || strings.HasPrefix(comment, "go:") || strings.HasPrefix(comment, "nolint") {
				require.NotRegexp(t, opening, paragraph, "%s:%d: a sentence of the comment before begins without its noun", s.path, i+1)
				paragraph = ""
				continue
			}
			require.LessOrEqual(t, utf8.RuneCountInString(strings.ReplaceAll(line, "\t", "    ")), mostColumns, "%s:%d: the comment is too wide", s.path, i+1)
			paragraph = strings.TrimSpace(paragraph + comment)
			for _, w := range word.FindAllString(comment, -1) {
				words[s.dir()]++
				if pronoun.MatchString(w) {
					pronouns[s.dir()]++
				}
			}
		}
	}
	all, without := 0, 0
	for dir, n := range words {
		all, without = all+n, without+pronouns[dir]
	}
	require.Greater(t, all, 10_000)
	worst := slices.SortedFunc(maps.Keys(words), func(a, b string) int { return pronouns[b]*words[a] - pronouns[a]*words[b] })
	require.LessOrEqual(t, 100*without, mostPronouns*all, "pronouns in comments; their share is largest in %s", worst[:min(5, len(worst))])
}
