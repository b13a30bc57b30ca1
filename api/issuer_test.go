package api

import (
	"context"
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/zap/zaptest"

	"github.com/notyet/notyet/internal/access"
	"github.com/notyet/notyet/schemas"
	"github.com/notyet/notyet/test/oidctest"
)

// Callers of an issuer see and change the topics of their groups, and nothing of others.
func TestCallersOfAnIssuer(t *testing.T) {
	w := newWorld(t)
	p := oidctest.New(t)
	file := filepath.Join(t.TempDir(), "tokens.yaml")
	require.NoError(t, os.WriteFile(file, []byte("- {group: shop, role: operate, topics: [orders]}\n- {group: office, role: read, topics: [bills]}\n"), 0o600))
	guard, err := access.New(access.Config{Tokens: file, JWT: access.JWT{Issuer: p.URL, Audience: oidctest.Audience, GroupsClaim: "groups", NameClaim: "sub"}}, zaptest.NewLogger(t))
	require.NoError(t, err)
	server := httptest.NewServer(guard.Handler(w.mux))
	t.Cleanup(server.Close)
	w.url = server.URL
	w.tokens["shop"], w.tokens["shop's friend"], w.tokens["office"], w.tokens["nobody"] = p.Token("s1", "shop"), p.Token("s2", "shop"), p.Token("o1", "office"), p.Token("n1", "others")
	due := time.Now().Add(time.Hour).UnixMilli()
	for _, id := range []string{"1", "2", "3"} {
		w.schedule("orders", id, due, nil, []byte("v"))
		w.schedule("bills", id, due, nil, []byte("v"))
	}
	for _, c := range []struct {
		who, method, path string
		want              int
	}{
		{"shop", "GET", "/api/v1/tasks/orders/1", 200},
		{"shop", "GET", "/api/v1/tasks/bills/1", 403},
		{"shop", "GET", "/api/v1/tasks?topic=bills", 403},
		{"shop", "POST", "/api/v1/tasks/orders/1/cancel", 202},
		{"shop", "POST", "/api/v1/tasks/bills/1/cancel", 403},
		{"office", "GET", "/api/v1/tasks/bills/1", 200},
		{"office", "GET", "/api/v1/tasks/orders/1", 403},
		{"office", "POST", "/api/v1/tasks/bills/1/cancel", 403},
		{"nobody", "GET", "/api/v1/tasks/orders/1", 403},
		{"admin", "GET", "/api/v1/tasks/orders/1", 401}, // a token of another file
	} {
		code, text := w.as(c.who, c.method, c.path, "")
		require.Equal(t, c.want, code, "%s %s: %s", c.who, c.path, text)
	}
	_, text := w.as("shop", "GET", "/api/v1/audit", "")
	require.Contains(t, text, `"who":"jwt:s1"`)
	_, text = w.as("office", "GET", "/api/v1/audit", "")
	require.NotContains(t, text, "s1")

	var page Tasks
	_, text = w.as("shop", "GET", "/api/v1/tasks?topic=orders&limit=1", "")
	require.NoError(t, json.Unmarshal([]byte(text), &page))
	require.NotEmpty(t, page.Cursor)
	next := "/api/v1/tasks?topic=orders&limit=1&cursor=" + url.QueryEscape(page.Cursor)
	code, _ := w.as("shop", "GET", next, "")
	require.Equal(t, 200, code)
	w.tokens["shop"] = p.Token("s1", "shop")
	code, _ = w.as("shop", "GET", next, "")
	require.Equal(t, 200, code, "the caller's next token goes on with the list")
	code, _ = w.as("shop's friend", "GET", next, "")
	require.Equal(t, 422, code)
}

// A request that waits for an answer ends without it when its token does: access.Guard ends its context then.
func TestWaitEndsWithTheToken(t *testing.T) {
	w := newWorld(t)
	ctx, end := context.WithCancel(access.With(t.Context(), access.Caller{Name: "a", Role: access.Operate, Topics: access.Everything}))
	ended := make(chan struct{})
	w.respond(func(r *schemas.Request, position string) []schemas.Event {
		end()
		select {
		case <-ended:
		case <-time.After(20 * time.Second): // it still waits
		}
		return []schemas.Event{{Topic: r.Topic, ID: r.ID, State: schemas.StateCancelled, Request: position}}
	})
	answer := httptest.NewRecorder()
	w.mux.ServeHTTP(answer, httptest.NewRequest(http.MethodPost, "/api/v1/tasks/orders/1/cancel?wait=30s", nil).WithContext(ctx))
	close(ended)
	require.NotEqual(t, 200, answer.Code, answer.Body)
	require.NotContains(t, answer.Body.String(), "cancelled")
	require.Empty(t, w.answers.waiters)
}
