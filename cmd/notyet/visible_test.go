package main

import (
	"bytes"
	"encoding/json"
	"strings"
	"testing"
	"unicode"

	"github.com/stretchr/testify/require"

	"github.com/notyet/notyet/deadletter"
	"github.com/notyet/notyet/internal/command"
	"github.com/notyet/notyet/schemas"
)

// hostile is what a caller may put into an id, a reason or a value, and no terminal may see.
const hostile = "a\x1b[2J\x1b]0;owned\x07\r\nnotyet: done\u202Egnp.exe\u009b31m\u2028\u200b\x7f\U000E0041\x00z"

func requireHarmless(t *testing.T, out string) {
	t.Helper()
	for _, r := range out {
		require.True(t, r == '\n' || unicode.IsPrint(r), "%q holds %U", out, r)
	}
}

func TestNothingThatIsPrintedMovesTheCursor(t *testing.T) {
	var out bytes.Buffer
	a := &app{&command.App{Ctx: t.Context(), Stdout: command.Visible(&out), Stderr: command.Visible(&out), Name: "notyet"}}
	e := schemas.Event{Topic: hostile, ID: hostile, State: hostile, At: 1, Due: 2, Attempt: 1, Reason: hostile}
	value := hostile
	c := &deadletter.Content{Key: &value, Value: &value, Headers: []deadletter.Header{{Key: hostile, Value: &value}}}
	for what, print := range map[string]func(){
		"event":   func() { require.NoError(t, a.event(event{Event: e}, false)) },
		"table":   func() { a.Table([]any{"A", "B"}, [][]any{{hostile, 1}}) },
		"pairs":   func() { pairs(a.Stdout, "name", hostile) },
		"content": func() { content(a.Stdout, c) },
		"error":   func() { a.Code(command.Usage("%s", "it is "+strings.ReplaceAll(hostile, "\n", "")), isMistake) },
	} {
		out.Reset()
		print()
		requireHarmless(t, out.String())
		require.NotContains(t, out.String(), "\nnotyet: done", "%s: a line of its own making", what)
	}
}

// JSON says the same, escaped.
func TestPrintedJSONIsTheSameAndHarmless(t *testing.T) {
	var out bytes.Buffer
	a := &app{&command.App{Stdout: command.Visible(&out)}}
	raw, err := json.Marshal(map[string]string{"id": "bell" + strings.ReplaceAll(hostile, "\x7f", "")})
	require.NoError(t, err)
	unescaped := []byte("{\"id\":\"\u202e\x7f\u009b\U000E0041\U0001F600\"}") // valid JSON, as another producer may write it
	for want, print := range map[string]func() error{
		string(raw):       func() error { return a.event(event{raw: raw}, true) },
		string(unescaped): func() error { return a.event(event{raw: unescaped}, true) },
	} {
		for _, indented := range []bool{false, true} {
			out.Reset()
			if indented {
				require.NoError(t, a.JSON(json.RawMessage(want)))
			} else {
				require.NoError(t, print())
			}
			requireHarmless(t, out.String())
			require.JSONEq(t, want, out.String())
		}
	}
}
