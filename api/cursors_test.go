package api

import (
	"context"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/notyet/notyet/deadletter"
)

func TestCursorsAreSealed(t *testing.T) {
	same := func(context.Context, string) ([16]byte, error) { return [16]byte{1}, nil }
	c, process := &cursors{secret: same}, &cursors{secret: same}
	ctx := by(t, "a")
	for _, place := range []string{"", "7", "billing\x00customer-4711", "ends with zeros\x00\x00", "ends with a one\x01", strings.Repeat("x", 500)} {
		cursor, err := c.seal(ctx, "timers", place)
		require.NoError(t, err)
		require.NotContains(t, cursor, "billing")
		require.LessOrEqual(t, len(cursor), 1000)
		got, err := process.open(ctx, "timers", cursor)
		require.NoError(t, err)
		require.Equal(t, place, got, "another process knows it too")
	}
	short, err := c.seal(ctx, "timers", "7")
	require.NoError(t, err)
	longer, err := c.seal(ctx, "timers", strings.Repeat("7", cursorBlock-1))
	require.NoError(t, err)
	require.Len(t, longer, len(short), "its length tells nothing about an id's")
	var wrong *deadletter.FieldError
	for name, open := range map[string]func() (string, error){
		"of another list":  func() (string, error) { return c.open(ctx, "tasks", short) },
		"of another token": func() (string, error) { return c.open(by(t, "b"), "timers", short) },
		"changed":          func() (string, error) { return c.open(ctx, "timers", "A"+short[1:]+"A") },
		"made up":          func() (string, error) { return c.open(ctx, "timers", "7") },
	} {
		_, err := open()
		require.ErrorAs(t, err, &wrong, name)
		require.Equal(t, "cursor", wrong.Field)
	}
}
