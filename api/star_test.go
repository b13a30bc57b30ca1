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

// docs/callbacks.md: "intake.allowed-targets and the topics of tokens are compared with the origin … A * alone allows every topic and no callback."
func TestAStarTokenIsNotForAllTopics(t *testing.T) {
	w := newWorld(t)
	const origin = "https://bank.example"
	w.schedule(origin, "payout", time.Now().Add(time.Hour).UnixMilli(), nil, []byte("v"))
	mux := http.NewServeMux()
	Mount(mux, w.local, nil, Config{Version: "test", Intakes: fixed(Intake{Topic: "in.a"})})
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
	code, _ := star("GET", "/api/v1/task?topic=https%3A%2F%2Fbank.example&id=payout", "")
	require.Equal(t, 403, code, "by name it is not his")
	for _, path := range []string{"/api/v1/overview", "/api/v1/forecast", "/api/v1/deadletters/count"} {
		code, _ := star("GET", path, "")
		require.Equal(t, 403, code, path)
	}
	code, _ = star("POST", "/api/v1/tasks/cancel-many", `{"all":true}`)
	require.Equal(t, 403, code)
	_, after := w.do("GET", "/api/v1/task?topic=https%3A%2F%2Fbank.example&id=payout", "")
	var got Task
	require.NoError(t, json.Unmarshal([]byte(after), &got))
	require.Equal(t, "pending", got.State, "a callback's task, which this token may not touch, was cancelled")
}
