package api

import (
	"cmp"
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
		{"GET", "/forecast?from=1800000000005&to=1800000000004", "", "query.to", "to is not after from: write"},
		{"GET", "/task?topic=orders", "", "query.id", "id required query parameter is missing"},
		{"GET", "/deadletters/x", "", "path.id", "id invalid integer: write a whole number"},
		{"GET", "/deadletters?replayed=maybe", "", "query.replayed", "replayed invalid boolean: write true or false"},
		{"POST", "/tasks", `{"topic":"orders","at":1.5}`, "body.at", "at is no time: write RFC 3339 in quotes, or Unix ms"},
		{"POST", "/deadletters/purge", `{"since":1800000000}`, "body.since", "since is below 100000000000, so it is Unix seconds by mistake: write Unix milliseconds: 1800000000000"},
		{"POST", "/deadletters/replay", `{"until":1800000000}`, "body.until", "until is below 100000000000, so it is Unix seconds"},
		{"GET", "/deadletters?kind=expried", "", "query.kind", "kind expected value to be one of"},
		{"PUT", "/targets/a%20b", `{}`, "path.topic", "topic is not a topic name: write"},
		{"PUT", "/targets/a", `{"rate":-1}`, "body.rate", "rate is not 0.001 to 1000000"},
		{"PUT", "/timers/a%20b/c", `{"every":"1h"}`, "path.topic", "topic is not a topic name: write"},
		{"POST", "/tasks", `{"topic":"orders","delay":"1h","dealy":"1h"}`, "body.dealy", "dealy unexpected property: leave it out"},
		{"POST", "/tasks", `{"topic":"orders","Topic":"other","delay":"1h"}`, "body.Topic", "Topic unexpected property: leave it out"},
		{"POST", "/tasks", `{`, "body", "body unexpected EOF after offset 1: send JSON"},
		{"POST", "/tasks", `{"topic":"orders"}`, "body.at", "at is missing: send at or delay"},
		{"POST", "/tasks", `{"topic":"orders","delay":"1h","value":{"a":1}}`, "body.value", `value expected string in quotes: text, JSON too: "{\"a\":1}"`},
		{"POST", "/tasks", `{"topic":"orders","delay":30}`, "body.delay", "delay expected string in quotes: such as 90s, 36h"},
		{"POST", "/tasks", `{"topic":"orders","delay":"1h","headers":{"a":"b"}}`, "body.headers", `headers expected array: the business's own, in their order: [{"key":"name","value":"text"}]`},
		{"POST", "/tasks", `{"topic":"orders","delay":"1h","version":18446744073709551616}`, "body.version", "version is no whole number in digits that fits into 64 bits"},
		{"POST", "/tasks", `{"topic":"orders","delay":"1h","version":"1"}`, "body.version", "version expected integer: write a whole number"},
		{"POST", "/tasks", ``, "", "request body is required: send JSON"},
		{"GET", "/task?topic=https%3A%2F%2Fshop.example%2F&id=x", "", "query.topic", "topic has more than an origin: write https://shop.example"},
		{"GET", "/tasks?topic=orders%2Fpaid", "", "query.topic", `topic is not a topic name because of its /: write`},
	} {
		code, answer := w.do(c.method, "/api/v1"+c.path, c.body)
		require.Contains(t, []int{400, 422}, code, c.path)
		var p huma.ErrorModel
		require.NoError(t, json.Unmarshal([]byte(answer), &p), c.path)
		require.Contains(t, p.Detail, c.detail, c.path)
		if c.location != "" {
			require.Equal(t, c.location, p.Errors[0].Location, c.path)
		}
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
		"DELETE /tasks":               "GET, POST",
		"OPTIONS /tasks":              "GET, POST",
		"GET /tasks/cancel":           "POST",
		"PUT /tasks/orders/a%2Fb":     "GET",
		"POST /timers/orders/close":   "GET, PUT, DELETE",
		"GET /tasks/a/b/c":            "",
		"GET /task/":                  "",
		"GET /deadletters/purge":      "POST", // which is no id
		"OPTIONS /deadletters/replay": "POST",
		"HEAD /tasks/fire":            "POST",
	} {
		method, path, _ := strings.Cut(call, " ")
		req, err := http.NewRequestWithContext(t.Context(), method, w.url+"/api/v1"+path, http.NoBody)
		require.NoError(t, err)
		req.Header.Set("Authorization", "Bearer "+w.tokens["admin"])
		resp, err := http.DefaultClient.Do(req)
		require.NoError(t, err)
		var p huma.ErrorModel
		if method != http.MethodHead {
			require.NoError(t, json.NewDecoder(resp.Body).Decode(&p), call)
		}
		require.NoError(t, resp.Body.Close())
		status := http.StatusMethodNotAllowed
		if want == "" {
			status = http.StatusNotFound
		}
		require.Equal(t, []any{status, want, status}, []any{resp.StatusCode, resp.Header.Get("Allow"), cmp.Or(p.Status, status)}, call)
		require.Equal(t, "application/problem+json", resp.Header.Get("Content-Type"))
	}
	_, answer := w.do("DELETE", "/api/v1/tasks/orders/a", "")
	require.Contains(t, answer, "send GET; there is also POST /api/v1/tasks/{topic}/{id}/cancel, POST /api/v1/tasks/{topic}/{id}/fire")
	_, answer = w.do("POST", "/api/v1/timers", "{}")
	require.Contains(t, answer, "PUT or DELETE /api/v1/timers/{topic}/{id}")
}
