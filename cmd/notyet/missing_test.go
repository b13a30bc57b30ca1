package main

import (
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/notyet/notyet/internal/command"
)

// A command warns once of a database that does not answer, and is done: its output is the others'.
func TestCommandsWarnOfADatabaseThatDoesNotAnswer(t *testing.T) {
	pages := map[string]string{
		"":  `{"tasks":[{"topic":"orders","id":"a"}],"cursor":"b","missing":[1,2]}`,
		"b": `{"tasks":[{"topic":"orders","id":"b"}],"missing":[1]}`,
	}
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		_, _ = w.Write([]byte(pages[r.URL.Query().Get("cursor")]))
	}))
	defer server.Close()
	r := notyet(t, nil, "", "list", "--http-addr", strings.TrimPrefix(server.URL, "http://"), "--json")
	require.Equal(t, command.ExitDone, r.code, r.stderr)
	require.Equal(t, "warning: database 1 does not answer: what it holds is missing here\nwarning: database 2 does not answer: what it holds is missing here\n", r.stderr)
	require.Contains(t, r.stdout, `"id": "b"`)
}
