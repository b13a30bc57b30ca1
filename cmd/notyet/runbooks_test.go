package main

import (
	"fmt"
	"io"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/alecthomas/kong"
	"github.com/stretchr/testify/require"
)

var (
	shellBlock = regexp.MustCompile("(?ms)^ *```sh\n(.*?)^ *```")
	inlineCode = regexp.MustCompile("`(notyet [^`]+)`")
	shellWord  = regexp.MustCompile(`'[^']*'|\S+`)
)

// commandLines returns the commands of notyet that stand in a page's blocks, without the program's name.
func commandLines(page string) [][]string {
	var out [][]string
	for _, block := range shellBlock.FindAllStringSubmatch(page, -1) {
		for line := range strings.Lines(block[1]) {
			line, _, _ = strings.Cut(line, "|")
			words := shellWord.FindAllString(line, -1)
			for i, w := range words {
				words[i] = strings.Trim(w, "'")
			}
			if len(words) > 0 && words[0] == "notyet" {
				out = append(out, words[1:])
			}
		}
	}
	return out
}

func grammar(t *testing.T) *kong.Kong {
	t.Helper()
	parser, err := kong.New(new(cli), kong.Name("notyet"), kong.Writers(io.Discard, io.Discard), kong.Exit(func(int) {}))
	require.NoError(t, err)
	return parser
}

// named walks the commands that words name, and says where they end.
func named(root *kong.Node, words []string) error {
	for at := root; len(words) > 0 && len(at.Children) > 0; words = words[1:] {
		i := slices.IndexFunc(at.Children, func(n *kong.Node) bool { return n.Name == words[0] })
		if i < 0 {
			return fmt.Errorf("%q is no command of %s", words[0], at.Name)
		}
		at = at.Children[i]
	}
	return nil
}

// An operator types what a runbook says in the worst hour of the week.
func TestCommandsOfRunbooksExist(t *testing.T) {
	pages, err := filepath.Glob("../../docs/runbooks/*.md")
	require.NoError(t, err)
	lines := 0
	for _, path := range append(pages, "../../docs/not-arrived.md") {
		page, err := os.ReadFile(path)
		require.NoError(t, err)
		for _, words := range commandLines(string(page)) {
			_, err := grammar(t).Parse(words)
			require.NoError(t, err, "%s: notyet %s", path, strings.Join(words, " "))
			lines++
		}
		for _, m := range inlineCode.FindAllStringSubmatch(string(page), -1) {
			require.NoError(t, named(grammar(t).Model.Node, strings.Fields(m[1])[1:]), "%s: %s", path, m[1])
		}
	}
	require.Greater(t, lines, 40)
}

// A check that accepts anything would not notice a command that is gone.
func TestWhichCommandsExist(t *testing.T) {
	page := "```sh\nnotyet schedule -t orders --delay 0s --value '{\"a\": 1}'\n```\n\n`notyet list`\n\n  ```sh\n  ls | notyet\n  notyet list --json | jq .\n  ```\n"
	require.Equal(t, [][]string{{"schedule", "-t", "orders", "--delay", "0s", "--value", `{"a": 1}`}, {"list", "--json"}}, commandLines(page))
	for _, wrong := range [][]string{{"lists"}, {"list", "--jsn"}, {"deadletter"}, {"cancel", "--id"}, {"target", "pause"}} {
		_, err := grammar(t).Parse(wrong)
		require.Error(t, err, wrong)
	}
	root := grammar(t).Model.Node
	require.NoError(t, named(root, []string{"deadletter", "list", "--json"}))
	require.NoError(t, named(root, []string{"target"}))
	require.Error(t, named(root, []string{"deadletter", "lists"}))
	require.Error(t, named(root, []string{"lists"}))
}
