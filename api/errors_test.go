package api

import (
	"encoding/json"
	"io"
	"net/http"
	"strings"
	"testing"

	"github.com/danielgtaylor/huma/v2"
	"github.com/stretchr/testify/require"
)

// Each mistake is named with its field, where that is, and the fix, in the detail too.
func TestProblemsNameTheField(t *testing.T) {
	w := newWorld(t)
	for _, c := range []struct{ method, path, body, location, detail string }{
		{"GET", "/tasks?limit=1001", "", "query.limit", "limit expected number <= 1000"},
		{"GET", "/tasks?prefix=a", "", "query.prefix", "prefix unknown query parameter: leave it out"},
		{"GET", "/tasks?cursor=x", "", "query.cursor", "cursor is none that a list has answered: give back"},
		{"GET", "/forecast?from=5&to=4", "", "query.to", "to is not after from: write"},
		{"GET", "/task?topic=orders", "", "query.id", "id required query parameter is missing"},
		{"GET", "/deadletters/x", "", "path.id", "id invalid integer: write a whole number"},
		{"GET", "/deadletters?replayed=maybe", "", "query.replayed", "replayed invalid boolean: write true or false"},
		{"POST", "/tasks", `{"topic":"orders","at":1.5}`, "body.at", "at is no time: write RFC 3339 in quotes, or Unix ms"},
		{"POST", "/deadletters/purge", `{"since":1800000000}`, "body.since", "since is below 100000000000, so it is Unix seconds by mistake: write Unix milliseconds: 1800000000000"},
		{"POST", "/deadletters/replay", `{"until":1800000000}`, "body.until", "until is below 100000000000, so it is Unix seconds"},
		{"GET", "/deadletters?kind=expried", "", "query.kind", "kind expected value to be one of"},
		{"PUT", "/targets/a%20b", `{}`, "path.topic", "topic is no name of a topic: write"},
		{"PUT", "/targets/a", `{"rate":-1}`, "body.rate", "rate is not 0.001 to 1000000"},
		{"PUT", "/timers/a%20b/c", `{"every":"1h"}`, "path.topic", "topic is not a topic name: write"},
		{"POST", "/tasks", `{"topic":"orders","delay":"1h","dealy":"1h"}`, "body.dealy", "dealy unexpected property: leave it out"},
		{"POST", "/tasks", `{"topic":"orders","Topic":"other","delay":"1h"}`, "body.Topic", "Topic unexpected property: leave it out"},
		{"POST", "/tasks", `{`, "body", "body unexpected end of JSON input"},
		{"POST", "/tasks", `{"topic":"orders"}`, "body.at", "at is missing: send at or delay"},
	} {
		code, answer := w.do(c.method, "/api/v1"+c.path, c.body)
		require.Contains(t, []int{400, 422}, code, c.path)
		var p huma.ErrorModel
		require.NoError(t, json.Unmarshal([]byte(answer), &p), c.path)
		require.Contains(t, p.Detail, c.detail, c.path)
		require.Equal(t, c.location, p.Errors[0].Location, c.path)
	}
	form, err := http.NewRequestWithContext(t.Context(), http.MethodPut, w.url+"/api/v1/targets/a", strings.NewReader(`{"paused":true}`))
	require.NoError(t, err)
	form.Header.Set("Content-Type", "application/x-www-form-urlencoded") // what curl -d sends
	form.Header.Set("Authorization", "Bearer "+w.tokens["admin"])
	resp, err := http.DefaultClient.Do(form)
	require.NoError(t, err)
	defer resp.Body.Close()
	answer, err := io.ReadAll(resp.Body)
	require.NoError(t, err)
	require.Equal(t, http.StatusUnsupportedMediaType, resp.StatusCode)
	require.Contains(t, string(answer), "send JSON, with the header Content-Type: application/json")
}

// A path with another method says so, and which it has.
func TestMethodsThatAPathDoesNotHave(t *testing.T) {
	w := newWorld(t)
	for call, want := range map[string]string{
		"DELETE /tasks":             "GET, POST",
		"OPTIONS /tasks":            "GET, POST",
		"GET /tasks/cancel":         "POST",
		"PUT /tasks/orders/a%2Fb":   "GET",
		"POST /timers/orders/close": "GET, PUT, DELETE",
		"GET /tasks/a/b/c":          "",
		"GET /task/":                "",
	} {
		method, path, _ := strings.Cut(call, " ")
		req, err := http.NewRequestWithContext(t.Context(), method, w.url+"/api/v1"+path, http.NoBody)
		require.NoError(t, err)
		req.Header.Set("Authorization", "Bearer "+w.tokens["admin"])
		resp, err := http.DefaultClient.Do(req)
		require.NoError(t, err)
		var p huma.ErrorModel
		require.NoError(t, json.NewDecoder(resp.Body).Decode(&p), call)
		require.NoError(t, resp.Body.Close())
		status := http.StatusMethodNotAllowed
		if want == "" {
			status = http.StatusNotFound
		}
		require.Equal(t, []any{status, want, status}, []any{resp.StatusCode, resp.Header.Get("Allow"), p.Status}, call)
		require.Equal(t, "application/problem+json", resp.Header.Get("Content-Type"))
	}
}
