package main

import (
	"crypto/hmac"
	"crypto/sha256"
	"encoding/base64"
	"encoding/json"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/notyet/notyet/api"
	"github.com/notyet/notyet/internal/command"
)

func TestDevMakesSignedCallbacks(t *testing.T) {
	key := []byte("a secret of this receiver")
	type call struct {
		request *http.Request
		body    []byte
		at      time.Time
	}
	got, answers := make(chan call, 100), make(chan int, 100)
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		got <- call{r, body, time.Now()}
		select {
		case status := <-answers:
			w.WriteHeader(status)
		case <-r.Context().Done():
		}
	}))
	t.Cleanup(server.Close)
	secrets := filepath.Join(t.TempDir(), "secrets.yaml")
	require.NoError(t, os.WriteFile(secrets, []byte("- origin: "+server.URL+"\n  secrets: [whsec_"+base64.StdEncoding.EncodeToString(key)+"]\n"), 0o600))
	d := startDev(t, "--set", "callback.secrets="+secrets)

	value := []byte("\x00any\xffbytes")
	due := time.Now().Add(700 * time.Millisecond).UnixMilli()
	header := func(name, value string) kgo.RecordHeader { return kgo.RecordHeader{Key: name, Value: []byte(value)} }
	require.NoError(t, client(t, d.kafka).ProduceSync(t.Context(), &kgo.Record{Topic: "notyet.intake", Key: []byte("k"), Value: value, Headers: []kgo.RecordHeader{
		header("notyet-url", server.URL+"/hooks?a=b"), header("notyet-method", "PATCH"), header("notyet-id", "größe"), header("notyet-at", strconv.FormatInt(due, 10)),
		header("notyet-backoff", "fixed:100ms"), header("notyet-events", "all"), header("x-own", "kept"), header("connection", "x-hop"), header("x-hop", "dropped"),
	}}).FirstErr())
	answers <- 503
	answers <- 204
	keys := map[string]bool{}
	for attempt := 1; attempt <= 2; attempt++ {
		var c call
		select {
		case c = <-got:
		case <-time.After(time.Minute):
			require.Fail(t, "no request came", "%s", d.errs)
		}
		require.GreaterOrEqual(t, c.at.UnixMilli(), due, "never before due")
		require.Equal(t, "PATCH /hooks?a=b", c.request.Method+" "+c.request.URL.String())
		require.Equal(t, value, c.body)
		h := c.request.Header
		require.Equal(t, []string{"gr%C3%B6%C3%9Fe", strconv.FormatInt(due, 10), strconv.Itoa(attempt), "kept", ""},
			[]string{h.Get("Notyet-Id"), h.Get("Notyet-Due"), h.Get("Notyet-Attempt"), h.Get("X-Own"), h.Get("X-Hop")})
		require.Equal(t, h.Get("Idempotency-Key"), h.Get("Webhook-Id"))
		mac := hmac.New(sha256.New, key)
		mac.Write([]byte(h.Get("Webhook-Id") + "." + h.Get("Webhook-Timestamp") + "." + string(value)))
		require.Equal(t, "v1,"+base64.StdEncoding.EncodeToString(mac.Sum(nil)), h.Get("Webhook-Signature"))
		keys[h.Get("Idempotency-Key")] = true
	}
	require.Len(t, keys, 2, "each attempt has its own")

	var task api.Task
	require.Eventually(t, func() bool {
		r := d.cmd(t, "get", "-t", server.URL, "--id", "größe", "--json")
		return r.code == command.ExitDone && json.Unmarshal([]byte(r.stdout), &task) == nil && task.State == "delivered"
	}, time.Minute, 10*time.Millisecond)
	require.Equal(t, server.URL, task.Topic)
	require.Equal(t, 2, task.Attempt)
}

// A callback that a receiver refuses is a dead letter; replayed, it is delivered.
func TestDevReplaysACallback(t *testing.T) {
	answer := make(chan int, 10)
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		_, _ = io.Copy(io.Discard, r.Body)
		select {
		case status := <-answer:
			w.WriteHeader(status)
			_, _ = io.WriteString(w, "no such hook")
		case <-r.Context().Done():
		}
	}))
	t.Cleanup(server.Close)
	d := startDev(t)
	answer <- 404
	header := func(name, value string) kgo.RecordHeader { return kgo.RecordHeader{Key: name, Value: []byte(value)} }
	require.NoError(t, client(t, d.kafka).ProduceSync(t.Context(), &kgo.Record{Topic: "notyet.intake", Value: []byte("v"), Headers: []kgo.RecordHeader{
		header("notyet-url", server.URL+"/hooks"), header("notyet-id", "one"), header("notyet-delay", "0s")}}).FirstErr())
	require.Eventually(t, func() bool {
		r := d.cmd(t, "deadletter", "list", "--topic", server.URL)
		return r.code == command.ExitDone && strings.Contains(r.stdout, "callback") && strings.Contains(r.stdout, "answered 404: no such hook")
	}, time.Minute, 10*time.Millisecond)
	answer <- 200
	r := d.cmd(t, "deadletter", "replay", "--topic", server.URL)
	require.Equal(t, command.ExitDone, r.code, r.stderr)
	require.Eventually(t, func() bool {
		return strings.Contains(d.cmd(t, "get", "-t", server.URL, "--id", "one").stdout, "delivered")
	}, time.Minute, 10*time.Millisecond)
}

// A timer with a URL makes callbacks: each run once, under its own id.
func TestDevTimersMakeCallbacks(t *testing.T) {
	ids := make(chan string, 100)
	server := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) { ids <- r.Header.Get("Notyet-Id") }))
	t.Cleanup(server.Close)
	d := startDev(t)
	header := func(name, value string) kgo.RecordHeader { return kgo.RecordHeader{Key: name, Value: []byte(value)} }
	require.NoError(t, client(t, d.kafka).ProduceSync(t.Context(), &kgo.Record{Topic: "notyet.intake", Value: []byte("v"), Headers: []kgo.RecordHeader{
		header("notyet-op", "timer"), header("notyet-url", server.URL+"/tick"), header("notyet-id", "ticks"), header("notyet-every", "1s")}}).FirstErr())
	seen := map[string]bool{}
	for range 3 {
		select {
		case id := <-ids:
			require.Regexp(t, `^ticks@\d{13}$`, id)
			require.False(t, seen[id])
			seen[id] = true
		case <-time.After(time.Minute):
			require.Fail(t, "no request came", "%s", d.errs)
		}
	}
}

// The same from the shell: scheduled by URL, shown, and cancelled by origin or by any URL of it.
func TestCallbacksFromTheShell(t *testing.T) {
	got := make(chan string, 10)
	server := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		got <- r.Method + " " + r.URL.Path + " " + r.Header.Get("Notyet-Id") + " " + string(body)
	}))
	t.Cleanup(server.Close)
	d := startDev(t)
	r := d.cmd(t, "schedule", "--url", server.URL+"/hook", "--method", "PUT", "--id", "now", "--delay", "100ms", "--value", "v", "--wait")
	require.Equal(t, command.ExitDone, r.code, r.stderr)
	require.Contains(t, r.stdout, "succeeded")
	require.Equal(t, "PUT /hook now v", <-got)

	for i, name := range [][]string{{"-t", server.URL}, {"--url", server.URL + "/any"}} {
		id := strconv.Itoa(i)
		r = d.cmd(t, "schedule", "--url", server.URL+"/hook", "--id", id, "--delay", "1h", "--value", "v")
		require.Equal(t, command.ExitDone, r.code, r.stderr)
		require.Eventually(t, func() bool {
			return strings.Contains(d.cmd(t, "get", "-t", server.URL, "--id", id).stdout, "POST "+server.URL+"/hook")
		}, time.Minute, 10*time.Millisecond)
		r = d.cmd(t, append([]string{"cancel", "--id", id}, name...)...)
		require.Equal(t, command.ExitDone, r.code, r.stderr+r.stdout)
		require.Contains(t, r.stdout, "cancelled")
	}
	r = d.cmd(t, "timer", "set", "--url", server.URL+"/tick", "--id", "t", "--every", "1h", "--value", "v")
	require.Equal(t, command.ExitDone, r.code, r.stderr)
	for _, c := range []struct {
		args []string
		want string
	}{
		{[]string{"schedule", "--delay", "1s", "--value", "v"}, "--topic"},
		{[]string{"schedule", "--delay", "1s", "--value", "v", "-t", "orders", "--url", server.URL}, "--url"},
		{[]string{"schedule", "--delay", "1s", "--value", "v", "--url", "shop.example"}, "is not an absolute http or https URL"},
		{[]string{"schedule", "--delay", "1s", "--value", "v", "-t", "orders", "--method", "PUT"}, "means nothing without notyet-url"},
	} {
		r = d.cmd(t, c.args...)
		require.Equal(t, command.ExitUsage, r.code, r.stdout)
		require.Contains(t, r.stderr, c.want)
	}
}
