package api

import (
	"fmt"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/notyet/notyet/schemas"
	"github.com/notyet/notyet/task"
)

// A callback is scheduled with url and method, and named by its origin in any form: in bodies as it is, in paths percent-encoded.
func TestCallbacksByOrigin(t *testing.T) {
	w := newWorld(t)
	code, answer := w.do("POST", "/api/v1/tasks", `{"url":"https://Shop.Example:443/a?b","method":"PUT","id":"a","delay":"1h","value":"v"}`)
	require.Equal(t, 202, code, answer)
	require.Contains(t, answer, `"topic":"https://shop.example"`)
	for _, body := range []string{`{"topic":"https://shop.example","id":"a"}`, `{"url":"https://shop.example/other","id":"a"}`} {
		code, answer = w.do("POST", "/api/v1/tasks/cancel", body)
		require.Equal(t, 202, code, answer)
	}
	origin := url.PathEscape("HTTPS://shop.example:443")
	code, answer = w.do("POST", "/api/v1/tasks/"+origin+"/a%2Fb/fire", "")
	require.Equal(t, 202, code, answer)
	code, answer = w.do("PUT", "/api/v1/timers/"+origin+"/t", `{"every":"1m","url":"https://shop.example/tick"}`)
	require.Equal(t, 202, code, answer)
	code, answer = w.do("PUT", "/api/v1/timers/"+origin+"/t", `{"every":"1m","url":"https://other.example/tick"}`)
	require.Equal(t, 422, code, answer)
	require.Contains(t, answer, "is of another origin than the timer's topic")

	var said []string
	for _, r := range w.records("in.a", 5) {
		req, err := schemas.Decode(r, schemas.Limits{})
		require.NoError(t, err)
		said = append(said, strings.TrimSpace(fmt.Sprintln(req.Op, req.Topic, req.ID, req.Settings.Callback.Method, req.Settings.Callback.URL)))
	}
	require.ElementsMatch(t, []string{
		"schedule https://shop.example a PUT https://Shop.Example:443/a?b", "cancel https://shop.example a", "cancel https://shop.example a",
		"fire https://shop.example a/b", "timer https://shop.example t POST https://shop.example/tick",
	}, said)
}

func TestCallbacksAreShownByOrigin(t *testing.T) {
	w := newWorld(t)
	due := time.Now().Add(time.Hour).UnixMilli()
	settings := schemas.CallbackSettings("https://shop.example/secret-path", "PUT")
	w.put(task.Change{Request: &schemas.Request{Topic: "https://shop.example", ID: "a", GivenID: true, Due: due, Accepted: due, Version: -1, Value: []byte("v"), Settings: settings}})
	for _, path := range []string{
		"/api/v1/tasks/" + url.PathEscape("https://shop.example") + "/a", "/api/v1/task?id=a&topic=" + url.QueryEscape("HTTPS://shop.example:443"),
		"/api/v1/tasks?content=true&topic=" + url.QueryEscape("https://shop.example"),
	} {
		code, answer := w.do("GET", path, "")
		require.Equal(t, 200, code, answer)
		for _, want := range []string{`"topic":"https://shop.example"`, `"url":"https://shop.example/secret-path"`, `"method":"PUT"`, `"ack_timeout":"30s"`} {
			require.Contains(t, answer, want)
		}
		if strings.Contains(path, "content") {
			continue
		}
		code, answer = w.as("read", "GET", path, "")
		require.Equal(t, 200, code, answer)
		require.Contains(t, answer, `"topic":"https://shop.example"`)
		require.NotContains(t, answer, "secret-path", "a path may be a secret")
	}
	// A token for some topics is for these origins, too.
	for _, body := range []string{`{"url":"https://shop.example/","delay":"1h"}`, `{"url":"https://shop.example/","topic":"orders","delay":"1h"}`, `{"url":"nonsense","topic":"orders","delay":"1h"}`, `{"delay":"1h"}`} {
		code, answer := w.as("operate of orders", "POST", "/api/v1/tasks", body)
		require.Equal(t, 403, code, "%s: %s", body, answer)
	}
	code, _ := w.as("operate of orders", "PUT", "/api/v1/timers/orders/t", `{"every":"1m","url":"https://shop.example/tick"}`)
	require.Equal(t, 403, code)
}
