package console

import (
	"context"
	"errors"
	"maps"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
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
	for _, value := range []string{"", strings.Repeat("A", 52), w.tokens["admin"], sealedBySomebodyElse(t, session{Token: w.tokens["admin"], Began: time.Now(), Met: time.Now()})} {
		require.Equal(t, http.StatusSeeOther, w.with(sessionCookie, value), "a cookie that this installation has not made")
	}
	require.Equal(t, http.StatusSeeOther, w.with(sessionCookie, w.seal(attemptCookie, session{Token: w.tokens["admin"], Began: time.Now(), Met: time.Now()})), "one for another purpose")
	require.Equal(t, http.StatusOK, w.with(sessionCookie, w.seal(sessionCookie, session{Token: w.tokens["admin"], Began: time.Now(), Met: time.Now()})))

	resp, _ = b.post("/sign-out", nil)
	require.Equal(t, http.StatusSeeOther, resp.StatusCode)
	require.Contains(t, resp.Header.Get("Set-Cookie"), "Max-Age=0")
	resp, _ = b.get("/")
	require.Equal(t, http.StatusSeeOther, resp.StatusCode)
}

// with asks for a page with a cookie, and returns the status.
func (w *world) with(name, value string) int {
	w.t.Helper()
	req, err := http.NewRequestWithContext(w.t.Context(), http.MethodGet, w.url+"/find", nil)
	require.NoError(w.t, err)
	req.AddCookie(&http.Cookie{Name: name, Value: value})
	resp, _ := w.browser().do(req)
	return resp.StatusCode
}

func (w *world) seal(purpose string, v any) string {
	w.t.Helper()
	sealed, err := w.sessions.sealer.seal(w.t.Context(), purpose, v)
	require.NoError(w.t, err)
	return sealed
}

// common is a database in memory.
type common struct {
	secret [16]byte
	ended  map[string]time.Time
	away   error

	reads   atomic.Int64
	release chan struct{} // nil: nobody waits for it
}

func (c *common) Secret(ctx context.Context, _ string) ([16]byte, error) {
	c.reads.Add(1)
	if c.release != nil {
		<-c.release
	}
	return c.secret, errors.Join(c.away, ctx.Err())
}

func (c *common) EndSession(ctx context.Context, id string, until int64) error {
	if err := errors.Join(c.away, ctx.Err()); err != nil {
		return err
	}
	c.ended[id] = time.UnixMilli(until)
	return nil
}

func (c *common) EndedSessions(context.Context) (map[string]time.Time, error) {
	return maps.Clone(c.ended), c.away
}

func newCommon() *common { return &common{secret: [16]byte{1}, ended: map[string]time.Time{}} }

func (c *common) get() Common { return c }

func sealedBySomebodyElse(t *testing.T, v any) string {
	t.Helper()
	s := sealer{common: newCommon().get, client: func() string { return "" }}
	sealed, err := s.seal(t.Context(), sessionCookie, v)
	require.NoError(t, err)
	return sealed
}

// A restart ends no session, and any process of the installation knows it.
func TestSessionsAreGoodForEveryProcess(t *testing.T) {
	w := newWorld(t, true)
	b := w.as("operate")
	w.restart()
	resp, text := b.get("/find")
	require.Equal(t, http.StatusOK, resp.StatusCode)
	require.Contains(t, text, "operate (operate)")
	w.writeTokens(access.Read) // which takes the other tokens back
	require.Eventually(t, func() bool { resp, _ := b.get("/find"); return resp.StatusCode == http.StatusSeeOther }, time.Minute, 50*time.Millisecond)
}

func TestCookiesAreTheHostsOwnOverHTTPS(t *testing.T) {
	w := newWorld(t, true)
	s := NewSessions(Config{Guard: w.guard, Common: newCommon().get, PublicURL: "https://notyet.example"})
	r := httptest.NewRequest(http.MethodGet, "/", nil)
	out := httptest.NewRecorder()
	require.NoError(t, s.begin(out, r, "read", session{Token: w.tokens["read"]}))
	cookie := out.Result().Cookies()[0]
	require.Equal(t, "__Host-notyet_session", cookie.Name)
	require.True(t, cookie.Secure)
	require.Equal(t, "/", cookie.Path)
	require.Empty(t, cookie.Domain)

	r.AddCookie(&http.Cookie{Name: sessionCookie, Value: cookie.Value}) // which another host of the domain could have set
	x, _, err := s.resume(r)
	require.NoError(t, err)
	require.Nil(t, x)
	r.AddCookie(cookie)
	x, _, err = s.resume(r)
	require.NoError(t, err)
	require.NotNil(t, x)
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
	w.sessions.sealer.common = newCommon().get // the database is outside the bubble
	synctest.Test(t, func(t *testing.T) {
		refreshes := false
		front := w.sessions.Front(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {}))
		jar := map[string]string{}
		asks := func(name string) bool {
			r := httptest.NewRequest(http.MethodGet, "/", nil)
			if refreshes {
				r.Header.Set(refreshHeader, "1")
			}
			r.AddCookie(&http.Cookie{Name: sessionCookie, Value: jar[name]})
			out := httptest.NewRecorder()
			front.ServeHTTP(out, r)
			for _, c := range out.Result().Cookies() {
				jar[name] = c.Value
			}
			return out.Code == http.StatusOK
		}
		begin := func(name string) {
			out := httptest.NewRecorder()
			require.NoError(t, w.sessions.begin(out, httptest.NewRequest(http.MethodGet, "/", nil), "read", session{Token: w.tokens["read"]}))
			jar[name] = out.Result().Cookies()[0].Value
		}
		begin("used")
		begin("idle")
		for range 2 {
			time.Sleep(sessionIdle * 2 / 3)
			require.True(t, asks("used"))
		}
		require.False(t, asks("idle"))
		before := jar["used"]
		time.Sleep(renewAfter / 2)
		require.True(t, asks("used"))
		require.Equal(t, before, jar["used"], "most answers have no cookie")
		began, asked := time.Now(), 0
		for ; asks("used"); asked++ {
			require.Less(t, time.Since(began), sessionLife)
			time.Sleep(sessionIdle / 2)
		}
		require.Greater(t, asked, 15)
		require.False(t, asks("used"), "twelve hours after it began, however it is used")

		begin("left")
		refreshes = true
		for range 3 {
			require.True(t, asks("left"))
			time.Sleep(sessionIdle / 3)
		}
		time.Sleep(time.Second)
		require.False(t, asks("left"), "a page that refreshes itself is no use of the session")
	})
}

// A caller's requests end with the session, also those that wait.
func TestASessionBoundsItsRequests(t *testing.T) {
	w := newWorld(t, true)
	began := time.Now().Add(-sessionLife + time.Minute).Truncate(time.Second)
	r := httptest.NewRequest(http.MethodGet, "/", nil)
	r.AddCookie(&http.Cookie{Name: sessionCookie, Value: w.seal(sessionCookie, session{Token: w.tokens["read"], Began: began, Met: time.Now()})})
	_, caller, err := w.sessions.resume(r)
	require.NoError(t, err)
	require.Equal(t, began.Add(sessionLife), caller.Until.Local())
}

func TestWithoutTheDatabaseNobodyIsSignedInOrOut(t *testing.T) {
	w := newWorld(t, true)
	b := w.as("read")
	w.restart()
	w.sessions.sealer.common = (&common{away: errors.New("away")}).get
	resp, text := b.get("/find")
	require.Equal(t, http.StatusServiceUnavailable, resp.StatusCode)
	require.Contains(t, text, "The database is away")
	require.Empty(t, resp.Header.Get("Set-Cookie"))
	w.sessions.sealer.common = w.sessions.cfg.Common
	resp, _ = b.get("/find")
	require.Equal(t, http.StatusOK, resp.StatusCode)
}

// Another secret of the installation, of a database that was set back, is in force within a minute. While the database is away, the known one is.
func TestTheKeyOfSessionsFollowsTheDatabase(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCommon()
		s := &sealer{common: c.get, client: func() string { return "" }}
		opens := func(sealed string) bool {
			var out string
			ok, err := s.open(t.Context(), "a", sealed, &out)
			require.NoError(t, err)
			return ok
		}
		before, err := s.seal(t.Context(), "a", "text")
		require.NoError(t, err)
		c.secret = [16]byte{2}
		require.True(t, opens(before))
		c.away = errors.New("away")
		time.Sleep(rereadAfter)
		require.True(t, opens(before))
		c.away = nil
		time.Sleep(rereadAfter)
		require.False(t, opens(before))
		after, err := s.seal(t.Context(), "a", "text")
		require.NoError(t, err)
		require.True(t, opens(after))

		// Whoever asks at that moment and leaves keeps no key in force.
		c.secret = [16]byte{3}
		time.Sleep(rereadAfter)
		gone, leave := context.WithCancel(t.Context())
		leave()
		_, err = s.open(gone, "a", "none", nil)
		require.NoError(t, err)
		require.False(t, opens(after))
	})
}

// Anybody can send cookies that are none. While the database is slow, they must not take its connections from everybody else.
func TestOneRequestReadsTheKeyForAll(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCommon()
		s := &sealer{common: c.get, client: func() string { return "" }}
		for range 2 { // at the start, and when it is read again
			c.reads.Store(0)
			c.release = make(chan struct{})
			for range 100 {
				go func() {
					ok, err := s.open(t.Context(), "a", "none", nil)
					assert.NoError(t, err)
					assert.False(t, ok)
				}()
			}
			synctest.Wait()
			require.EqualValues(t, 1, c.reads.Load())
			close(c.release)
			synctest.Wait()
			time.Sleep(rereadAfter)
		}
	})
}

// A copy of the cookie is worth nothing once its operator has signed out: here at once, and at every process within a minute.
func TestSigningOutEndsCopiesOfTheCookie(t *testing.T) {
	w := newWorld(t, true)
	synctest.Test(t, func(t *testing.T) {
		c := newCommon()
		process := func() *Sessions {
			return NewSessions(Config{Guard: w.guard, Common: c.get, Log: w.log})
		}
		here, elsewhere := process(), process()
		with := func(cookie *http.Cookie) *http.Request {
			r := httptest.NewRequest(http.MethodPost, "/sign-out", nil)
			r.AddCookie(cookie)
			return r
		}
		lives := func(s *Sessions, cookie *http.Cookie) bool {
			x, _, err := s.resume(with(cookie))
			require.NoError(t, err)
			return x != nil
		}
		begin := func() *http.Cookie {
			out := httptest.NewRecorder()
			require.NoError(t, here.begin(out, httptest.NewRequest(http.MethodGet, "/", nil), "read", session{Token: w.tokens["read"]}))
			return out.Result().Cookies()[0]
		}
		first, second := begin(), begin()
		x, err := here.opened(with(first))
		require.NoError(t, err)
		x.Met = x.Met.Add(time.Second)
		out := httptest.NewRecorder()
		require.NoError(t, here.give(out, with(first), x))
		renewed := out.Result().Cookies()[0]
		require.True(t, lives(elsewhere, renewed))

		r := with(first)
		gone, leave := context.WithCancel(r.Context())
		leave()
		here.signOut(httptest.NewRecorder(), r.WithContext(gone)) // who closes the browser is signed out all the same
		for _, cookie := range []*http.Cookie{first, renewed} {
			require.False(t, lives(here, cookie))
		}
		require.True(t, lives(here, second), "another session of the same token")
		require.Equal(t, map[string]time.Time{x.ID: time.UnixMilli(x.last().UnixMilli())}, c.ended)
		time.Sleep(rereadAfter)
		require.False(t, lives(elsewhere, renewed))
		require.True(t, lives(elsewhere, second))
		require.False(t, lives(process(), first))

		c.ended = map[string]time.Time{} // as a look at the database that began before the sign-out returns it
		time.Sleep(rereadAfter)
		require.False(t, lives(here, first))

		c.away = errors.New("away")
		out = httptest.NewRecorder()
		here.signOut(out, with(second))
		require.Equal(t, http.StatusServiceUnavailable, out.Code)
		require.Contains(t, out.Body.String(), "a copy of its cookie is good until")
		require.Contains(t, out.Header().Get("Set-Cookie"), "Max-Age=0")
		require.True(t, lives(here, second))

		time.Sleep(sessionLife)
		here.sealer.keep(func(*kept) {})
		require.Empty(t, here.sealer.kept.Load().ended, "what has ended by itself is forgotten")
	})
}
