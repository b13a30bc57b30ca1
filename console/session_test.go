package console

import (
	"net/http"
	"net/url"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/notyet/notyet/internal/access"
)

func TestWithoutASessionThereIsTheSignInPage(t *testing.T) {
	w := newWorld(t, true)
	b := w.browser()
	for _, path := range append(everyPage, "/nowhere") {
		resp, text := b.get(path)
		require.Equal(t, http.StatusSeeOther, resp.StatusCode, text)
		require.Equal(t, "/sign-in?"+url.Values{"next": {path}}.Encode(), resp.Header.Get("Location"))
	}
	resp, text := b.get("/sign-in?next=%2Faudit")
	require.Equal(t, http.StatusOK, resp.StatusCode)
	requireWhole(t, resp, text)
	require.Contains(t, text, `value="/audit"`)
	resp, _ = b.post("/targets", url.Values{"do": {"pause"}, "topic": {"orders"}, "confirmed": {"yes"}})
	require.Equal(t, http.StatusSeeOther, resp.StatusCode)
	resp, _ = b.get("/api/v1/tasks")
	require.Equal(t, http.StatusUnauthorized, resp.StatusCode, "the API asks for a token as before")
	for _, path := range []string{"/console/console.css", "/console/console.js"} {
		resp, text := b.get(path)
		require.Equal(t, http.StatusOK, resp.StatusCode)
		require.NotEmpty(t, text)
	}
}

func TestWrongTokens(t *testing.T) {
	w := newWorld(t, true)
	b := w.browser()
	last := 0
	for range 40 {
		resp, text := b.post("/sign-in", url.Values{"token": {"guessed-token"}})
		last = resp.StatusCode
		require.Contains(t, []int{http.StatusUnauthorized, http.StatusTooManyRequests}, last)
		require.Empty(t, resp.Header.Get("Set-Cookie"))
		require.NotContains(t, text, "guessed-token")
	}
	require.Equal(t, http.StatusTooManyRequests, last)
	w.as("read") // the right token is not held up by wrong ones
}

func TestCookie(t *testing.T) {
	w := newWorld(t, true)
	b := w.browser()
	resp, _ := b.post("/sign-in", url.Values{"token": {w.tokens["read"]}})
	cookie := resp.Header.Get("Set-Cookie")
	for _, want := range []string{"HttpOnly", "SameSite=Strict", "Path=/"} {
		require.Contains(t, cookie, want)
	}
	require.NotContains(t, cookie, w.tokens["read"], "the cookie is no token")
	require.NotContains(t, cookie, "Secure", "the test's server speaks plain HTTP")
	forged := w.browser()
	req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, w.url+"/", nil)
	require.NoError(t, err)
	req.AddCookie(&http.Cookie{Name: cookieName, Value: strings.Repeat("A", 52)})
	resp, _ = forged.do(req)
	require.Equal(t, http.StatusSeeOther, resp.StatusCode)

	resp, _ = b.post("/sign-out", nil)
	require.Equal(t, http.StatusSeeOther, resp.StatusCode)
	require.Empty(t, w.sessions.open)
	resp, _ = b.get("/")
	require.Equal(t, http.StatusSeeOther, resp.StatusCode)
}

// Behind a proxy that ends TLS, the browser says that it opened the site by HTTPS.
func TestCookieBehindAProxyThatEndsTLS(t *testing.T) {
	w := newWorld(t, true)
	b := w.browser()
	for origin, want := range map[string]bool{"https://notyet.example": true, "http://notyet.example": false} {
		form := strings.NewReader(url.Values{"token": {w.tokens["read"]}}.Encode())
		req, err := http.NewRequestWithContext(t.Context(), http.MethodPost, w.url+"/sign-in", form)
		require.NoError(t, err)
		req.Header.Set("Content-Type", "application/x-www-form-urlencoded")
		req.Header.Set("Origin", origin)
		req.Host = "notyet.example"
		resp, _ := b.do(req)
		require.Equal(t, http.StatusSeeOther, resp.StatusCode)
		require.Equal(t, want, strings.Contains(resp.Header.Get("Set-Cookie"), "Secure"), origin)
	}
}

func TestOtherSitesChangeNothing(t *testing.T) {
	w := newWorld(t, true)
	b := w.as("admin")
	for _, path := range []string{"/targets", "/task", "/timer", "/deadletters", "/sign-in", "/sign-out"} {
		req, err := http.NewRequestWithContext(t.Context(), http.MethodPost, w.url+path, strings.NewReader("do=pause&topic=orders&confirmed=yes"))
		require.NoError(t, err)
		req.Header.Set("Content-Type", "application/x-www-form-urlencoded")
		req.Header.Set("Sec-Fetch-Site", "cross-site")
		req.Header.Set("Origin", "https://evil.example")
		resp, _ := b.do(req)
		require.Equal(t, http.StatusForbidden, resp.StatusCode, path)
	}
}

func TestSignInLeadsNowhereElse(t *testing.T) {
	for next, want := range map[string]string{
		"/audit?who=a": "/audit?who=a", "": "/", "//evil.example": "/", "https://evil.example": "/", `/\evil.example`: "/", "evil": "/", "/a\r\nb": "/", "javascript:alert(1)": "/",
	} {
		require.Equal(t, want, local(next), next)
	}
}

func TestWithoutTokensLoopbackOnly(t *testing.T) {
	w := newWorld(t, false)
	b := w.browser()
	resp, text := b.get("/")
	require.Equal(t, http.StatusOK, resp.StatusCode)
	require.NotContains(t, text, "sign-out")
	resp, _ = b.get("/sign-in")
	require.Equal(t, "/", resp.Header.Get("Location"))
	req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, w.url+"/", nil)
	require.NoError(t, err)
	req.Host = "rebound.example"
	resp, _ = b.do(req)
	require.Equal(t, http.StatusForbidden, resp.StatusCode, "a name that somebody else's server resolves to 127.0.0.1")
}

func TestSessionsEnd(t *testing.T) {
	w := newWorld(t, true)
	guard, err := access.New(access.Config{Tokens: w.file}, nil)
	require.NoError(t, err)
	synctest.Test(t, func(t *testing.T) {
		s := NewSessions(guard, "test")
		refreshes := false
		asks := func(id string) bool {
			r, err := http.NewRequest(http.MethodGet, "/", nil)
			require.NoError(t, err)
			if refreshes {
				r.Header.Set(refreshHeader, "1")
			}
			r.AddCookie(&http.Cookie{Name: cookieName, Value: id})
			_, ok := s.token(r)
			return ok
		}
		used, idle := s.begin(w.tokens["read"], "read"), s.begin(w.tokens["read"], "read")
		for range 2 {
			time.Sleep(sessionIdle * 2 / 3)
			require.True(t, asks(used))
		}
		require.False(t, asks(idle))
		for began := time.Now(); time.Since(began) < sessionLife; time.Sleep(sessionIdle / 2) {
			asks(used)
		}
		require.False(t, asks(used))

		left := s.begin(w.tokens["read"], "read")
		refreshes = true
		for range 3 {
			require.True(t, asks(left))
			time.Sleep(sessionIdle / 3)
		}
		time.Sleep(time.Second)
		require.False(t, asks(left), "a page that refreshes itself is no use of the session")
		refreshes = false

		other := s.begin(w.tokens["admin"], "admin")
		first := s.begin(w.tokens["read"], "read")
		time.Sleep(time.Second)
		second := s.begin(w.tokens["read"], "read")
		for range maxSessions - 1 {
			time.Sleep(time.Millisecond)
			s.begin(w.tokens["read"], "read")
			asks(second)
		}
		require.Len(t, s.open, maxOfCaller+1)
		require.True(t, asks(other), "who has one token ends no session of another")
		require.False(t, asks(first), "the one that was not used for the longest time gave way")
		require.True(t, asks(second))
		require.False(t, asks(strings.Repeat("x", 52)))
	})
}
