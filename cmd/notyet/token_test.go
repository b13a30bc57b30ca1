package main

import (
	"encoding/json"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"go.uber.org/zap"
	"go.yaml.in/yaml/v3"

	"github.com/notyet/notyet/internal/access"
	"github.com/notyet/notyet/internal/command"
)

// newToken runs the command and writes what belongs into the tokens file.
func newToken(t *testing.T, path string, args ...string) string {
	t.Helper()
	r := notyet(t, nil, "", append([]string{"token", "new"}, args...)...)
	require.Equal(t, command.ExitDone, r.code, r.stderr)
	var out struct {
		Token string
		Entry []access.Entry
	}
	require.NoError(t, yaml.Unmarshal([]byte(r.stdout), &out))
	text, err := yaml.Marshal(out.Entry)
	require.NoError(t, err)
	require.NotContains(t, string(text), out.Token)
	file, err := os.OpenFile(path, os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o600)
	require.NoError(t, err)
	_, err = file.Write(text)
	require.NoError(t, err)
	require.NoError(t, file.Close())
	return out.Token
}

func TestCommandsShowTheirToken(t *testing.T) {
	path := filepath.Join(t.TempDir(), "tokens.yaml")
	reader := newToken(t, path, "dashboard", "--role", "read")
	admin := newToken(t, path, "root", "--role", "admin", "--topics", "orders,orders.*")
	d := startDev(t, "--set", "http.tokens="+path, "--set", "http.access-log=true")

	r := d.cmd(t, "list")
	require.Equal(t, command.ExitFailed, r.code)
	require.Contains(t, r.stderr, "NOTYET_HTTP_TOKEN")
	r = d.cmd(t, "list", "--http-token", reader)
	require.Equal(t, command.ExitDone, r.code, r.stderr)
	r = d.cmd(t, "deadletter", "purge", "--yes", "-t", "orders", "--http-token", reader)
	require.Equal(t, command.ExitFailed, r.code)
	require.Contains(t, r.stderr, "role admin")
	require.Empty(t, r.stdout, "nothing was purged")
	r = d.cmd(t, "target", "resume", "orders", "--http-token", reader)
	require.Equal(t, command.ExitFailed, r.code)
	require.Contains(t, r.stderr, "role operate")
	require.NotContains(t, r.stderr+r.stdout, "target", "nothing but the refusal")
	d.environ = append(d.environ, "NOTYET_HTTP_TOKEN="+admin)
	r = d.cmd(t, "deadletter", "purge", "--yes", "-t", "orders")
	require.Equal(t, command.ExitDone, r.code, r.stderr)
	r = d.cmd(t, "deadletter", "purge", "--yes", "-t", "bills")
	require.Equal(t, command.ExitFailed, r.code)
	require.NotContains(t, r.stderr, admin)
	r = d.cmd(t, "target", "pause", "bills")
	require.Equal(t, command.ExitFailed, r.code)
	require.Contains(t, r.stderr, "none of those of the token")
	require.NotContains(t, r.stderr, "no task")

	resp, err := http.Get("http://" + d.http + "/healthz") //nolint:noctx // a test's
	require.NoError(t, err)
	require.NoError(t, resp.Body.Close())
	require.Equal(t, 200, resp.StatusCode, "health needs no token")

	require.Equal(t, command.ExitDone, d.stop())
	var callers []string
	for line := range strings.Lines(d.out.String()) {
		var request struct{ Msg, Who, Route string }
		if json.Unmarshal([]byte(line), &request) == nil {
			require.Equal(t, "request", request.Msg)
			callers = append(callers, request.Who+" "+request.Route)
		}
	}
	require.Equal(t, []string{" ", "dashboard GET /api/v1/tasks", "dashboard GET /api/v1/deadletters/count", "dashboard POST /api/v1/deadletters/purge",
		"dashboard GET /api/v1/targets", "dashboard PATCH /api/v1/targets/{topic}",
		"root GET /api/v1/deadletters/count", "root POST /api/v1/deadletters/purge", "root GET /api/v1/deadletters/count",
		"root GET /api/v1/targets", "root PATCH /api/v1/targets/{topic}"}, callers)
	require.NotContains(t, d.out.String()+d.errs.String(), reader)
	require.NotContains(t, d.out.String()+d.errs.String(), admin)
}

func TestTokenAsJSON(t *testing.T) {
	r := notyet(t, nil, "", "token", "new", "ci", "--role", "operate", "--json")
	require.Equal(t, command.ExitDone, r.code, r.stderr)
	var out made
	require.NoError(t, json.Unmarshal([]byte(r.stdout), &out))
	require.NotEmpty(t, out.Token)
	require.Equal(t, access.Entry{Name: "ci", SHA256: out.Entry.SHA256, Role: "operate", Topics: access.Everything}, out.Entry)
}

func TestTokensThatExpire(t *testing.T) {
	path := filepath.Join(t.TempDir(), "tokens.yaml")
	newToken(t, path, "short", "--role", "read", "--expires", "2099-12-31")
	text, err := os.ReadFile(path)
	require.NoError(t, err)
	require.Contains(t, string(text), "2099-12-31")
	_, err = access.New(access.Config{Tokens: path}, zap.NewNop())
	require.NoError(t, err)
	for _, topics := range []string{"", ",", "*,orders"} {
		r := notyet(t, nil, "", "token", "new", "x", "--role", "read", "--topics", topics)
		require.Equal(t, command.ExitUsage, r.code, topics)
		require.Contains(t, r.stderr, "--topics: ")
	}
	for _, expires := range []string{"tomorrow", "2001-01-01"} {
		r := notyet(t, nil, "", "token", "new", "short", "--role", "read", "--expires", expires)
		require.Equal(t, command.ExitUsage, r.code)
		require.Contains(t, r.stderr, "--expires: ")
	}
}
