package api

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	"github.com/danielgtaylor/huma/v2"
	"github.com/stretchr/testify/require"
)

func unknownFields(n int) string {
	var b strings.Builder
	b.WriteString(`{"count":1`)
	for i := range n {
		fmt.Fprintf(&b, `,"x%d":1`, i)
	}
	return b.String() + "}"
}

// A problem document names each mistake, and a body of a megabyte has room for a hundred thousand.
func TestAnswersToManyMistakesAreBounded(t *testing.T) {
	w := newWorld(t)
	for name, c := range map[string]struct{ path, body string }{
		"unknown fields":      {"/api/v1/timers/preview", unknownFields(5000)},
		"more unknown fields": {"/api/v1/timers/preview", unknownFields(60_000)},
		"empty headers":       {"/api/v1/tasks", `{"headers":[{}` + strings.Repeat(",{}", 500_000) + `]}`},
		"a list in lists":     {"/api/v1/tasks", strings.Repeat("[", 5000) + strings.Repeat("]", 5000)},
	} {
		code, answer := w.do("POST", c.path, c.body)
		require.GreaterOrEqual(t, code, 400, name)
		require.Less(t, code, 500, name)
		require.Less(t, len(answer), 16<<10, name)
		var p huma.ErrorModel
		require.NoError(t, json.Unmarshal([]byte(answer), &p), name)
		require.NotEmpty(t, p.Errors, name)
	}
	code, answer := w.do("POST", "/api/v1/timers/preview", unknownFields(30))
	require.Equal(t, 422, code)
	require.Contains(t, answer, `"location":"body.x`)
	require.Contains(t, answer, "and 10 more mistakes")
}

func TestValuesOfABodyAreCounted(t *testing.T) {
	for text, want := range map[string]int{
		``: 1, `7`: 1, `{"a":1}`: 2, `{"a":1,"b":[2,3]}`: 5, `["a,b[{","\",\"",","]`: 4, `"\\",`: 2, `"unended,,,`: 1,
	} {
		require.Equal(t, want, countValues([]byte(text)), text)
	}
}
