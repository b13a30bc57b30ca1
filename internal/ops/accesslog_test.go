package ops

import (
	"crypto/sha256"
	"encoding/json"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/zap"
	"go.uber.org/zap/zapcore"
	"go.uber.org/zap/zaptest"

	"github.com/notyet/notyet/internal/access"
	"github.com/notyet/notyet/test/program"
)

// logged is an access log in memory.
type logged struct{ program.Output }

func (l *logged) logger() *zap.Logger {
	return zap.New(zapcore.NewCore(zapcore.NewJSONEncoder(zap.NewProductionEncoderConfig()), zapcore.AddSync(l), zapcore.InfoLevel))
}

// lines waits until there are n lines: a line is written after its answer.
func (l *logged) lines(t *testing.T, n int) []map[string]any {
	t.Helper()
	require.Eventually(t, func() bool { return strings.Count(l.String(), "\n") >= n }, time.Minute, time.Millisecond)
	var out []map[string]any
	for line := range strings.Lines(l.String()) {
		var fields map[string]any
		require.NoError(t, json.Unmarshal([]byte(line), &fields), line)
		out = append(out, fields)
	}
	require.Len(t, out, n)
	return out
}

const marker = "marker-of-a-secret"

// tokensOf makes a guard with a token of the role read, and returns the token.
func tokensOf(t *testing.T) (*access.Guard, string) {
	t.Helper()
	token := marker + "-token"
	file := filepath.Join(t.TempDir(), "tokens.yaml")
	require.NoError(t, os.WriteFile(file, fmt.Appendf(nil, "- {name: dashboard, sha256: %x, role: read, topics: ['*']}\n", sha256.Sum256([]byte(token))), 0o600))
	guard, err := access.New(access.Config{Tokens: file}, zaptest.NewLogger(t))
	require.NoError(t, err)
	return guard, token
}

func TestEachRequestHasALine(t *testing.T) {
	guard, token := tokensOf(t)
	front := func(next http.Handler) http.Handler {
		mux := http.NewServeMux()
		mux.HandleFunc("POST /sign-in", func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusSeeOther) })
		mux.Handle("/", next)
		return mux
	}
	var log logged
	s := New(Config{Guard: guard, Front: front, AccessLog: log.logger(), MaxConns: 2}, NewRegistry(), zaptest.NewLogger(t))
	begun, release := make(chan struct{}), make(chan struct{})
	s.Mux().HandleFunc("GET /slow", func(http.ResponseWriter, *http.Request) { close(begun); <-release })
	s.Mux().HandleFunc("GET /api/v1/tasks/{topic}/{id}", func(w http.ResponseWriter, _ *http.Request) {
		w.WriteHeader(http.StatusTeapot)
		_, _ = w.Write([]byte("seven b"))
	})
	// A client repeats a GET whose connection ends without an answer: since Go 1.27 also here.
	s.Mux().HandleFunc("POST /breaks", func(http.ResponseWriter, *http.Request) { panic(http.ErrAbortHandler) })
	url := run(t, s)
	send := func(method, path, token string, headers ...string) {
		t.Helper()
		req, err := http.NewRequestWithContext(t.Context(), method, url+path, strings.NewReader("body="+marker))
		require.NoError(t, err)
		if token != "" {
			req.Header.Set("Authorization", "Bearer "+token)
		}
		req.Header.Set("Cookie", "notyet_session="+marker)
		for i := 0; i < len(headers); i += 2 {
			req.Header.Set(headers[i], headers[i+1])
		}
		if resp, err := http.DefaultClient.Do(req); err == nil {
			require.NoError(t, resp.Body.Close())
		}
	}
	for i, c := range []struct {
		method, path, token string
		headers             []string
		want                map[string]any
	}{
		{"GET", "/api/v1/tasks/a/" + marker + "?token=" + marker, token, []string{"X-Request-Id", "r-1\t\u202e"},
			map[string]any{"who": "dashboard", "role": "read", "route": "GET /api/v1/tasks/{topic}/{id}", "status": 418.0, "bytes": 7.0, "request_id": "r-1"}},
		{"GET", "/" + marker, token, nil, map[string]any{"who": "dashboard", "route": "", "status": 404.0}},
		{"GET", "/api/v1/tasks/a/b", marker, nil, map[string]any{"who": "", "role": "", "route": "", "status": 401.0}},
		{"POST", "/sign-in?next=" + marker, "", nil, map[string]any{"who": "", "route": "POST /sign-in", "status": 303.0, "method": "POST"}},
		{"POST", "/api/v1/tasks/a/b", token, []string{"Origin", "https://elsewhere"}, map[string]any{"who": "", "status": 403.0}},
		{"POST", "/breaks", token, nil, map[string]any{"who": "dashboard", "route": "POST /breaks", "status": 500.0}},
		{strings.Repeat("M", 1000), "/", token, nil, map[string]any{"method": strings.Repeat("M", 20)}},
		{"GET", "/", token, []string{"X-Request-Id", strings.Repeat("x", 1000)}, map[string]any{"request_id": strings.Repeat("x", 100)}},
	} {
		send("GET", "/healthz", "")
		send(c.method, c.path, c.token, c.headers...)
		line := log.lines(t, i+1)[i]
		for field, want := range c.want {
			require.Equal(t, want, line[field], "%s: %s", c.path, field)
		}
		require.Contains(t, line["peer"], "127.0.0.1:")
		require.Positive(t, line["seconds"])
		require.NotContains(t, line, "left_out")
	}
	n := len(log.lines(t, strings.Count(log.String(), "\n")))
	go send("GET", "/slow", token)
	<-begun
	send("POST", "/breaks", token) // this token has its share of connections
	require.Equal(t, []any{"dashboard", "", 503.0}, []any{log.lines(t, n+1)[n]["who"], log.lines(t, n+1)[n]["route"], log.lines(t, n+1)[n]["status"]})
	close(release)
	require.Equal(t, "GET /slow", log.lines(t, n+2)[n+1]["route"])
	require.NotContains(t, log.String(), marker)
}

// Peers that are not admitted do not fill the log. What it leaves out, it counts.
func TestStrangersHaveFewLines(t *testing.T) {
	guard, token := tokensOf(t)
	var log logged
	l := newAccessLog(log.logger())
	h := l.around(guard.Handler(admitted(http.NewServeMux())))
	ask := func(token string) {
		r, err := http.NewRequestWithContext(t.Context(), http.MethodGet, "/", nil)
		require.NoError(t, err)
		r.Header.Set("Authorization", "Bearer "+token)
		h.ServeHTTP(discarded{}, r)
	}
	l.strangers.SetLimit(0) // only those that are let through at once
	for range strangersAtOnce + 50 {
		ask("wrong")
	}
	for range 2 * strangersAtOnce {
		ask(token)
	}
	lines := log.lines(t, 3*strangersAtOnce)
	require.Equal(t, 50.0, lines[strangersAtOnce]["left_out"])
	require.NotContains(t, lines[strangersAtOnce+1], "left_out")
}

type discarded struct{}

func (discarded) Header() http.Header         { return http.Header{} }
func (discarded) Write(p []byte) (int, error) { return len(p), nil }
func (discarded) WriteHeader(int)             {}
