package api

import (
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/notyet/notyet/internal/access"
)

// The topics ["*"] of a token are all of them, origins of callbacks too, and what is told of the whole installation.
func TestAStarTokenIsForAll(t *testing.T) {
	w := newWorld(t)
	w.decideCancels()
	const origin = "https://bank.example"
	w.schedule(origin, "payout", time.Now().Add(time.Hour).UnixMilli(), nil, []byte("v"))
	mux := http.NewServeMux()
	Mount(mux, Alone(w.local), nil, Config{Version: "test", Intakes: fixed(Intake{Topic: "in.a"})})
	star := func(method, path, body string) (int, string) {
		req := httptest.NewRequest(method, path, nil)
		if body != "" {
			req = httptest.NewRequest(method, path, strings.NewReader(body))
			req.Header.Set("Content-Type", "application/json")
		}
		rec := httptest.NewRecorder()
		mux.ServeHTTP(rec, req.WithContext(access.With(t.Context(), access.Caller{Name: "star", Role: access.Operate, Topics: []string{"*"}})))
		return rec.Code, rec.Body.String()
	}
	for _, path := range []string{"/api/v1/task?topic=https%3A%2F%2Fbank.example&id=payout", "/api/v1/overview", "/api/v1/forecast", "/api/v1/deadletters/count"} {
		code, answer := star("GET", path, "")
		require.Equal(t, 200, code, "%s: %s", path, answer)
	}
	code, answer := star("POST", "/api/v1/tasks/cancel-many", `{"all":true}`)
	require.Equal(t, 200, code, answer)
	_, after := w.do("GET", "/api/v1/task?topic=https%3A%2F%2Fbank.example&id=payout", "")
	var got Task
	require.NoError(t, json.Unmarshal([]byte(after), &got))
	require.Equal(t, "cancelled", got.State)
}
