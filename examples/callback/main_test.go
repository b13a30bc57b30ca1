package main

import (
	"bufio"
	"encoding/base64"
	"errors"
	"net/http/httptest"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/stretchr/testify/require"
	"go.uber.org/zap/zaptest"

	"github.com/notyet/notyet/callback"
	"github.com/notyet/notyet/schemas"
)

var (
	secret = "whsec_" + base64.StdEncoding.EncodeToString([]byte("the secret of this receiver"))
	other  = "whsec_" + base64.StdEncoding.EncodeToString([]byte("the secret of another one!!"))
)

// sender returns what notyet sends with, and a secrets file for the receiver; "" signs nothing.
func sender(t *testing.T, origin string, secrets ...string) *callback.Sender {
	t.Helper()
	cfg := callback.Config{URLRules: callback.URLRules{Enabled: true, AllowHTTP: true, AllowedNetworks: []netip.Prefix{netip.MustParsePrefix("127.0.0.0/8")}}}
	if len(secrets) > 0 {
		cfg.Secrets = filepath.Join(t.TempDir(), "secrets.yaml")
		require.NoError(t, os.WriteFile(cfg.Secrets, []byte("- origin: "+origin+"\n  secrets: ["+strings.Join(secrets, ", ")+"]\n"), 0o600))
	}
	s, err := callback.New(cfg, zaptest.NewLogger(t), prometheus.NewRegistry())
	require.NoError(t, err)
	t.Cleanup(s.Close)
	return s
}

const path = "/reminders"

func request(origin, key, body string) callback.Request {
	return callback.Request{
		URL: origin + path, Body: []byte(body),
		Delivery: schemas.Delivery{ID: "reminder-1", Due: 1790000060000, Attempt: 1, Key: key},
	}
}

func TestTheReceiverHandlesWhatNotyetSends(t *testing.T) {
	var handled []delivery
	var failure error
	r, err := newReceiver(secret, func(d delivery) error {
		if failure == nil {
			handled = append(handled, d)
		}
		return failure
	})
	require.NoError(t, err)
	server := httptest.NewServer(r)
	defer server.Close()
	good := sender(t, server.URL, secret)

	failure = errors.New("the database is away")
	o := good.Send(t.Context(), request(server.URL, "first", "call home"))
	require.Equal(t, callback.Retry, o.Verdict)
	require.Equal(t, 5*time.Second, o.After)
	require.Contains(t, o.Reason, "the database is away")
	failure = nil

	for range 2 { // the second is a copy
		require.Equal(t, callback.Delivered, good.Send(t.Context(), request(server.URL, "first", "call home")).Verdict)
	}
	require.Equal(t, []delivery{{id: "reminder-1", due: "1790000060000", attempt: "1", body: []byte("call home")}}, handled)

	rotated := sender(t, server.URL, other, secret)
	require.Equal(t, callback.Delivered, rotated.Send(t.Context(), request(server.URL, "second", "\x00\xff")).Verdict)
	require.Len(t, handled, 2)

	for name, s := range map[string]*callback.Sender{"another secret": sender(t, server.URL, other), "unsigned": sender(t, server.URL)} {
		o := s.Send(t.Context(), request(server.URL, "third", "let me in"))
		require.Equal(t, callback.Dead, o.Verdict, name)
		require.Equal(t, 401, o.Status, name)
	}
	require.Len(t, handled, 2)
}

func TestTheReceiverNeedsASecret(t *testing.T) {
	_, err := newReceiver("", nil)
	require.ErrorContains(t, err, "CALLBACK_SECRET")
	_, err = newReceiver("whsec_?", nil)
	require.ErrorContains(t, err, "CALLBACK_SECRET")
}

func TestTheReceiverForgets(t *testing.T) {
	r, err := newReceiver(secret, func(delivery) error { return nil })
	require.NoError(t, err)
	for i := range maxSeen + 10 {
		require.NoError(t, r.once(strconv.Itoa(i), delivery{}))
	}
	require.False(t, r.seen["9"])
	require.True(t, r.seen["10"])
	require.LessOrEqual(t, len(r.seen), maxSeen)
	require.LessOrEqual(t, len(r.keys), maxSeen)
}

// TestThePythonReceiver: what notyet signs verifies with the Python package of Standard Webhooks.
func TestThePythonReceiver(t *testing.T) {
	if os.Getenv("CI") != "true" && os.Getenv("NOTYET_CLIENTS") != "1" {
		t.Skip("it installs a Python package: set NOTYET_CLIENTS=1 (or CI=true) to run it")
	}
	lib := t.TempDir()
	out, err := exec.CommandContext(t.Context(), "python3", "-m", "pip", "install", "--quiet", "--disable-pip-version-check", "--target", lib, "-r", "requirements.txt").CombinedOutput()
	require.NoError(t, err, "%s", out)
	_, err = os.ReadFile("receiver.py") // so that the test cache notices a change
	require.NoError(t, err)
	cmd := exec.CommandContext(t.Context(), "python3", "receiver.py")
	cmd.Env = append(os.Environ(), "PYTHONPATH="+lib, "CALLBACK_SECRET="+secret, "CALLBACK_ADDR=127.0.0.1:0")
	cmd.Stderr = os.Stderr
	stdout, err := cmd.StdoutPipe()
	require.NoError(t, err)
	require.NoError(t, cmd.Start())
	defer func() {
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
	}()
	lines := bufio.NewScanner(stdout)
	require.True(t, lines.Scan())
	origin := strings.TrimPrefix(lines.Text(), "listening on ")

	good := sender(t, origin, other, secret)
	for i, body := range []string{"call home", `{"a":"ä"}`, ""} {
		for range 2 {
			require.Equal(t, callback.Delivered, good.Send(t.Context(), request(origin, "key-"+strconv.Itoa(i), body)).Verdict)
		}
		require.True(t, lines.Scan())
		require.Equal(t, "reminder-1 attempt 1: "+body, lines.Text())
	}
	for _, s := range []*callback.Sender{sender(t, origin, other), sender(t, origin)} {
		o := s.Send(t.Context(), request(origin, "third", "let me in"))
		require.Equal(t, callback.Dead, o.Verdict)
		require.Equal(t, 401, o.Status)
	}
	require.Equal(t, callback.Dead, good.Send(t.Context(), request(origin, "fourth", "\xff")).Verdict, "the package verifies UTF-8 only")
}
