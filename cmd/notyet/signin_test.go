package main

import (
	"io"
	"net/http"
	"net/http/cookiejar"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/notyet/notyet/internal/access"
	"github.com/notyet/notyet/internal/command"
	"github.com/notyet/notyet/test/oidctest"
)

// The settings of http.sign-in let operators sign in to the console. The secret may change in its file, and is
// nowhere in what a service prints, logs and serves.
func TestSignInToTheConsole(t *testing.T) {
	const wrong, right = "geheim-wrong", "geheim-right"
	p := oidctest.New(t)
	const public = "http://127.0.0.1:1" // the test's browser goes to the port that dev has got
	p.Client("console", right, public+access.CallbackPath)
	p.SetGroups(oidctest.Operator, "shop")
	tokens := fileWith(t, "tokens.yaml", "- {group: shop, role: operate, topics: [orders]}\n- {group: root, role: admin, topics: ['*']}\n")
	secret := fileWith(t, "secret", wrong+"\n")
	settings := []string{"--set", "http.tokens=" + tokens, "--set", "http.jwt.issuer=" + p.URL, "--set", "http.jwt.audience=" + oidctest.Audience, "--set", "http.sign-in.client-id=console",
		"--set", "http.sign-in.client-secret-file=" + secret, "--set", "http.public-url=" + public, "--set", "http.pprof=true"}
	d := startDev(t, append(settings, "--set", "log.level=debug")...)
	jar, err := cookiejar.New(nil)
	require.NoError(t, err)
	browser := &http.Client{Jar: jar, CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }}
	get := func(at, token string) (int, string, string) {
		req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, strings.Replace(at, public, "http://"+d.http, 1), nil)
		require.NoError(t, err)
		if token != "" {
			req.Header.Set("Authorization", "Bearer "+token)
		}
		resp, err := browser.Do(req)
		require.NoError(t, err)
		defer resp.Body.Close()
		text, err := io.ReadAll(resp.Body)
		require.NoError(t, err)
		require.NotContains(t, string(text), "geheim", at)
		if to := resp.Header.Get("Location"); to != "" {
			next, err := req.URL.Parse(to)
			require.NoError(t, err)
			to = next.String()
			return resp.StatusCode, string(text), to
		}
		return resp.StatusCode, string(text), ""
	}
	signIn := func() (status int, text string) {
		for to := public + "/sign-in/start"; to != ""; {
			status, text, to = get(to, "")
		}
		return status, text
	}
	status, text := signIn()
	require.Equal(t, http.StatusUnauthorized, status, text)
	require.Contains(t, text, "http.sign-in.client-secret")
	require.NoError(t, os.WriteFile(secret, []byte(right+"\n"), 0o600))
	require.Eventually(t, func() bool { status, text = signIn(); return status == http.StatusOK }, time.Minute, 100*time.Millisecond, text)
	status, text, _ = get(public+"/find", "")
	require.Equal(t, http.StatusOK, status)
	require.Contains(t, text, "jwt:"+oidctest.Operator+" (operate)")

	root := p.Token("r1", "root")
	for _, path := range []string{"/metrics", "/readyz", "/openapi.json", "/debug/pprof/cmdline", "/debug/pprof/goroutine?debug=2", "/sign-in"} {
		status, text, _ = get(public+path, root)
		require.Equal(t, http.StatusOK, status, path)
		require.NotEmpty(t, text)
		if path == "/metrics" {
			require.Contains(t, text, `notyet_http_refused_total{why="provider"}`)
		}
	}
	r := d.cmd(t, append([]string{"config", "print"}, settings...)...)
	require.Equal(t, command.ExitDone, r.code, r.stderr)
	require.Contains(t, r.stdout, "http.sign-in.client-secret")
	require.Equal(t, command.ExitDone, d.stop())
	require.NotContains(t, r.stdout+r.stderr+d.out.String()+d.errs.String(), "geheim")
	require.Contains(t, d.errs.String(), "an operator has signed in to the console")
}
