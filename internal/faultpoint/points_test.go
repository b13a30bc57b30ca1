package faultpoint

import (
	"flag"
	"fmt"
	"os"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// update writes the table anew: go test ./internal/faultpoint -update.
var update = flag.Bool("update", false, "rewrite the table of docs/design/failures.md")

// The table of docs/design/failures.md is made from Rows.
func TestTableOfPlaces(t *testing.T) {
	const path, begin, end = "../../docs/design/failures.md", "<!-- places: begin -->\n", "<!-- places: end -->"
	page, err := os.ReadFile(path)
	require.NoError(t, err)
	head, rest, begun := strings.Cut(string(page), begin)
	_, tail, ended := strings.Cut(rest, end)
	require.True(t, begun && ended, "%s has no lines %s and %s", path, begin, end)
	var table strings.Builder
	table.WriteString("| place | died after | what happens |\n|---|---|---|\n")
	for _, r := range Rows {
		fmt.Fprintf(&table, "| `%s` | %s | %s |\n", r.Name, r.After, r.Then)
	}
	want := head + begin + table.String() + end + tail
	if *update {
		require.NoError(t, os.WriteFile(path, []byte(want), 0o644))
		return
	}
	require.Equal(t, want, string(page), "write it anew with -update")
}
