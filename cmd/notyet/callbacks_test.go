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
	"go.uber.org/zap"

	"github.com/notyet/notyet/api"
	"github.com/notyet/notyet/cmd/internal/command"
	"github.com/notyet/notyet/internal/config"
	"github.com/notyet/notyet/schemas"
)

// What an intake says to a URL, by the settings of the installation.
func TestCallbacksAreRefusedAtTheIntake(t *testing.T) {
	on := []string{"callback.enabled=true"}
	with := func(more ...string) []string { return append(on[:1:1], more...) }
	for _, c := range []struct {
		settings []string
		url      string
		want     string // "": accepted
	}{
		{nil, "https://shop.example/", `notyet-url "https://shop.example" is an HTTP callback, and this installation makes none: name a topic in notyet-topic, or ask the operator to set callback.enabled`},
		{on, "https://shop.example/hook?x=1", ""},
		{on, "https://8.8.8.8/", ""},
		{on, "https://[2606:4700::1111]/", ""},
		{on, "http://shop.example/", "is not https: use https, or ask the operator of this installation to allow it in callback.allow-http"},
		{with("callback.allow-http=true"), "http://shop.example/", ""},
		{with("callback.allowed-hosts=*.shop.example"), "https://a.shop.example/", ""},
		{with("callback.allowed-hosts=*.shop.example"), "https://shop.example.evil.example/", "callback.allowed-hosts"},
		{with("callback.allowed-ports=443"), "https://shop.example:8443/", "callback.allowed-ports"},
		{with("callback.allowed-ports=443,8443"), "https://shop.example:8443/", ""},
		{on, "https://127.0.0.1/", "callback.allowed-networks"},
		{on, "https://localhost/", "callback.allowed-networks"},
		{on, "https://10.0.0.1/", "callback.allowed-networks"},
		{on, "https://172.16.0.1/", "callback.allowed-networks"},
		{on, "https://192.168.1.1/", "callback.allowed-networks"},
		{on, "https://100.64.0.1/", "callback.allowed-networks"},
		{on, "https://169.254.169.254/latest/meta-data/", "callback.allowed-networks"},
		{on, "https://0.0.0.0/", "callback.allowed-networks"},
		{on, "https://224.0.0.1/", "callback.allowed-networks"},
		{on, "https://240.0.0.1/", "callback.allowed-networks"},
		{on, "https://[::1]/", "callback.allowed-networks"},
		{on, "https://[::ffff:127.0.0.1]/", "callback.allowed-networks"},
		{on, "https://[64:ff9b::7f00:1]/", "callback.allowed-networks"},
		{on, "https://[2002:7f00:1::]/", "callback.allowed-networks"},
		{on, "https://[fd00::1]/", "callback.allowed-networks"},
		{on, "https://[fe80::1]/", "callback.allowed-networks"},
		{with("callback.allowed-networks=10.1.0.0/16,::1/128"), "https://10.1.2.3/", ""},
		{with("callback.allowed-networks=10.1.0.0/16,::1/128"), "https://[::1]/", ""},
		{with("callback.allowed-networks=10.1.0.0/16"), "https://10.2.0.1/", "callback.allowed-networks"},
		{on, "https://user:secret@shop.example/", "notyet-url has user info"},
		{on, "ftp://shop.example/", "is not an absolute http or https URL"},
		{on, "https://2130706433/", "has a number as its host"},
		{on, "https://0177.0.0.1/", "has a number as its host"},
		{with("intake.allowed-targets=orders"), "https://shop.example/", `notyet-url "https://shop.example" is not allowed on this intake topic`},
		{with("intake.allowed-targets=*,https://*.example"), "https://shop.example/", ""},
	} {
		flags := map[string]string{}
		for _, s := range c.settings {
			key, value, _ := strings.Cut(s, "=")
			flags[key] = value
		}
		cfg, err := config.Load(config.Sources{Environ: []string{"PATH=/bin"}, Flags: flags})
		require.NoError(t, err)
		s := &service{cfg: cfg}
		require.NoError(t, s.takeLimits(cfg))
		limits := scannerConfig(cfg, *s.in.Load()).IntakeLimits[schemas.TopicIntake]
		header := func(name, value string) kgo.RecordHeader { return kgo.RecordHeader{Key: name, Value: []byte(value)} }
		_, err = schemas.Decode(&kgo.Record{Topic: schemas.TopicIntake, Timestamp: time.Now(), Headers: []kgo.RecordHeader{header(schemas.HeaderURL, c.url), header(schemas.HeaderDelay, "1s")}}, limits)
		if c.want == "" {
			require.NoError(t, err, "%v %s", c.settings, c.url)
			continue
		}
		require.ErrorContains(t, err, c.want, "%v %s", c.settings, c.url)
		require.NotContains(t, err.Error(), "secret")
	}
}

func TestWrongCallbackSettings(t *testing.T) {
	for setting, want := range map[string]string{
		"callback.allowed-networks=10.1.0.0":          "callback.allowed-networks",
		"callback.allowed-networks=::ffff:10.0.0.0/8": "callback.allowed-networks",
		"callback.allowed-hosts=https://a":            "callback.allowed-hosts",
		"callback.allowed-hosts=[":                    "callback.allowed-hosts",
		"callback.allowed-ports=0":                    "callback.allowed-ports",
		"callback.max-in-flight=2000":                 "callback.max-in-flight",
		"callback.max-timeout=0s":                     "callback.max-timeout",
		"intake.allowed-targets=https://a/b":          "it has a path",
	} {
		key, value, _ := strings.Cut(setting, "=")
		_, err := config.Load(config.Sources{Environ: []string{"PATH=/bin"}, Flags: map[string]string{key: value}})
		require.ErrorContains(t, err, want, setting)
	}
	for _, c := range []config.Callback{{CA: "/does/not/exist", MaxInFlight: 1, MaxInFlightTotal: 1}, {Secrets: "/does/not/exist", MaxInFlight: 1, MaxInFlightTotal: 1}} {
		s := &service{cfg: &config.Config{Callback: c}, log: zap.NewNop()}
		_, err := s.addCallbacks()
		require.ErrorContains(t, err, "callback.")
	}
}

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
