package main

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// TestCompletion asks as a shell does: it sets COMP_LINE to what was typed.
func TestCompletion(t *testing.T) {
	for line, want := range map[string]string{
		"notyet sch":                     "schedule",
		"notyet deadletter re":           "reconcile replay",
		"notyet get --js":                "--json",
		"notyet list -t a --htt":         "--http-addr --http-token",
		"notyet config check --service ": "all dispatcher scanner",
		"notyet completion ":             "bash fish zsh",
	} {
		t.Setenv("COMP_LINE", line)
		r := notyet(t, nil, "")
		require.Zero(t, r.code, line)
		require.Empty(t, r.stderr, line)
		require.ElementsMatch(t, strings.Fields(want), strings.Fields(r.stdout), line)
	}
}

func TestCompletionCode(t *testing.T) {
	for shell, want := range map[string]string{"bash": "complete -o default -o bashdefault -C ", "zsh": "#compdef notyet", "fish": "complete -f -c notyet"} {
		r := notyet(t, nil, "", "completion", "--code", shell)
		require.Zero(t, r.code, r.stderr)
		require.Contains(t, r.stdout, want)
	}
	r := notyet(t, nil, "", "completion", "bash")
	require.Contains(t, r.stdout, "source <(notyet completion -c bash)")
	require.Equal(t, 2, notyet(t, nil, "", "completion", "csh").code)
}
