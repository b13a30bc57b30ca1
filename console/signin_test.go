package console

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/notyet/notyet/internal/access"
	"github.com/notyet/notyet/internal/share"
	"github.com/notyet/notyet/test/oidctest"
)

const (
	ourName   = "notyet-console"
	ourSecret = "geheim-at-the-issuer"
)

// site is a world whose operators sign in at a provider.
type site struct {
	*world
	p *oidctest.Provider
}

func newSite(t *testing.T, change ...func(*access.Config)) *site {
	t.Helper()
	p := oidctest.New(t)
	change = append([]func(*access.Config){func(c *access.Config) {
		file, err := os.ReadFile(c.Tokens)
		require.NoError(t, err)
		require.NoError(t, os.WriteFile(c.Tokens, append(file, "- {group: shop, role: operate, topics: [orders]}\n- {group: office, role: read, topics: ['*']}\n"...), 0o600))
		c.JWT = access.JWT{Issuer: p.URL, Audience: oidctest.Audience, GroupsClaim: "groups", NameClaim: "sub"}
		c.SignIn.ClientID, c.SignIn.Scopes, c.SignIn.Secret = ourName, []string{"profile"}, func() string { return ourSecret }
		p.Client(ourName, ourSecret, c.SignIn.PublicURL+access.CallbackPath)
	}}, change...)
	w := newWorld(t, true, change...)
	p.SetGroups(oidctest.Operator, "shop", "others")
	return &site{w, p}
}

// follow goes along redirects until the browser is to come back to us, and returns that address.
func (w *site) follow(b *browser, path string) string {
	w.t.Helper()
	at := w.url + path
	for range 10 {
		req, err := http.NewRequestWithContext(w.t.Context(), http.MethodGet, at, nil)
		require.NoError(w.t, err)
		resp, text := b.do(req)
		require.NotEmpty(w.t, resp.Header.Get("Location"), "%s: %d %s", at, resp.StatusCode, text)
		to, err := req.URL.Parse(resp.Header.Get("Location"))
		require.NoError(w.t, err)
		if at = to.String(); to.Path == access.CallbackPath {
			return strings.TrimPrefix(at, w.url)
		}
	}
	w.t.Fatal("the browser does not come back")
	return ""
}

// signedIn is a browser whose operator has signed in at the provider.
func (w *site) signedIn() *browser {
	w.t.Helper()
	b := w.browser()
	resp, text := b.get(w.follow(b, startPath))
	require.Equal(w.t, http.StatusOK, resp.StatusCode, text)
	return b
}

func (w *site) cookie(b *browser, name string) string {
	u, err := url.Parse(w.url)
	require.NoError(w.t, err)
	for _, c := range b.c.Jar.Cookies(u) {
		if c.Name == name {
			return c.Value
		}
	}
	return ""
}

func TestSignInAtTheIssuer(t *testing.T) {
	w := newSite(t)
	w.schedule("orders", "4711", []byte("v"))
	w.schedule("bills", "4712", []byte("v"))
	b := w.browser()
	page := "/task?topic=orders&id=4711"
	resp, _ := b.get(page)
	require.Equal(t, http.StatusSeeOther, resp.StatusCode)
	resp, text := b.get(resp.Header.Get("Location"))
	requireWhole(t, resp, text)
	start := startPath + "?" + url.Values{"next": {page}}.Encode()
	require.Contains(t, text, `href="`+strings.ReplaceAll(start, "&", "&amp;")+`">Sign in with `+strings.TrimPrefix(w.p.URL, "http://"))
	require.Contains(t, text, `name="token"`, "a token does as before")

	back := w.follow(b, start)
	resp, text = b.get(back)
	require.Equal(t, http.StatusOK, resp.StatusCode, text)
	requireWhole(t, resp, text)
	require.Contains(t, text, `http-equiv="refresh" content="0; url=/task?topic=orders&amp;id=4711"`)
	require.Contains(t, strings.Join(resp.Header.Values("Set-Cookie"), "\n"), "SameSite=Strict")
	require.Empty(t, w.cookie(b, attemptCookie), "the attempt is over")
	resp, text = b.get(page)
	require.Equal(t, http.StatusOK, resp.StatusCode, text)
	require.Contains(t, text, "jwt:"+oidctest.Operator+" (operate)")
	resp, _ = b.get("/task?topic=bills&id=4712")
	require.Equal(t, http.StatusForbidden, resp.StatusCode, "another tenant's")
	resp, _ = b.post("/targets", url.Values{"do": {"pause"}, "topic": {"orders"}, "confirmed": {"yes"}})
	require.Equal(t, http.StatusSeeOther, resp.StatusCode)
	_, text = b.get("/audit")
	require.Contains(t, text, "jwt:"+oidctest.Operator)
	for _, path := range []string{"/api/v1/tasks", "/api/v1/audit", "/debug/pprof/", "/x/../api/v1/tasks", "/api%2fv1/tasks"} {
		resp, _ = b.get(path)
		require.NotEqual(t, http.StatusOK, resp.StatusCode, "a session is for pages only: %s", path)
	}

	w.restart() // or: the balancer takes another scanner
	resp, _ = b.get(page)
	require.Equal(t, http.StatusOK, resp.StatusCode)
	copied := w.cookie(b, sessionCookie)
	require.Equal(t, http.StatusOK, w.with(sessionCookie, copied))
	resp, _ = b.post("/sign-out", nil)
	require.Equal(t, http.StatusSeeOther, resp.StatusCode)
	resp, _ = b.get(page)
	require.Equal(t, http.StatusSeeOther, resp.StatusCode)
	require.Equal(t, http.StatusSeeOther, w.with(sessionCookie, copied))
	w.restart()
	require.Equal(t, http.StatusSeeOther, w.with(sessionCookie, copied))
	require.NotContains(t, logged(w.world), ourSecret)
}

func logged(w *world) string {
	var out strings.Builder
	for _, e := range w.logs.All() {
		out.WriteString(e.Message)
		for _, f := range e.Context {
			out.WriteString(" " + f.String)
			if err, ok := f.Interface.(error); ok {
				out.WriteString(" " + err.Error())
			}
		}
		out.WriteString("\n")
	}
	return out.String()
}

// The sign-in may begin at one process and end at another.
func TestAnySignInEndsAtAnyProcess(t *testing.T) {
	w := newSite(t)
	b := w.browser()
	back := w.follow(b, startPath)
	w.restart()
	resp, text := b.get(back)
	require.Equal(t, http.StatusOK, resp.StatusCode, text)
}

// What the browser is sent to the issuer with: PKCE by S256, a state, and a nonce, new ones each time.
func TestStartOfASignIn(t *testing.T) {
	w := newSite(t)
	seen := map[string]bool{}
	for range 2 {
		resp, _ := w.browser().get(startPath)
		to, err := url.Parse(resp.Header.Get("Location"))
		require.NoError(t, err)
		q := to.Query()
		require.Equal(t, w.p.URL, to.Scheme+"://"+to.Host)
		require.Equal(t, "code S256 "+ourName+" openid profile "+w.url+access.CallbackPath,
			strings.Join([]string{q.Get("response_type"), q.Get("code_challenge_method"), q.Get("client_id"), q.Get("scope"), q.Get("redirect_uri")}, " "))
		for _, name := range []string{"state", "nonce", "code_challenge"} {
			require.GreaterOrEqual(t, len(q.Get(name)), 43, name)
			require.False(t, seen[q.Get(name)], name)
			seen[q.Get(name)] = true
		}
		cookie := resp.Header.Get("Set-Cookie")
		for _, want := range []string{"HttpOnly", "SameSite=Lax", "Path=/", "Max-Age=600"} {
			require.Contains(t, cookie, want)
		}
		for value := range seen {
			require.NotContains(t, cookie, value)
		}
		require.NotContains(t, to.String(), ourSecret)
	}
}

// refusedAt asks for the address, and requires that nobody is signed in, for the reason.
func (w *site) refusedAt(b *browser, path string, status int, why string) {
	w.t.Helper()
	before := w.cookie(b, sessionCookie)
	resp, text := b.get(path)
	require.Equal(w.t, status, resp.StatusCode, text)
	require.Contains(w.t, text, why)
	require.Equal(w.t, before, w.cookie(b, sessionCookie))
	require.NotContains(w.t, text+logged(w.world), ourSecret)
}

const notBegun = "was not begun in this browser"

func TestLoginCSRF(t *testing.T) {
	w := newSite(t)
	attacker, victim := w.browser(), w.browser()
	back := w.follow(attacker, startPath)
	w.refusedAt(victim, back, http.StatusBadRequest, notBegun) // led to the attacker's answer, it has begun nothing
	w.follow(victim, startPath)
	w.refusedAt(victim, back, http.StatusBadRequest, notBegun) // it has begun something else
	w.refusedAt(victim, access.CallbackPath+"?code=x&state=", http.StatusBadRequest, notBegun)
	w.refusedAt(w.browser(), access.CallbackPath+"?code=x&state=", http.StatusBadRequest, notBegun)
	w.refusedAt(w.browser(), access.CallbackPath, http.StatusBadRequest, notBegun)

	// Another site's page begins nothing either, which would replace the victim's session.
	req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, w.url+startPath, nil)
	require.NoError(t, err)
	req.Header.Set("Sec-Fetch-Site", "cross-site")
	resp, _ := w.browser().do(req)
	require.Equal(t, "/sign-in?next=%2F", resp.Header.Get("Location"))
	require.Empty(t, resp.Header.Get("Set-Cookie"))
}

func TestOpenRedirect(t *testing.T) {
	w := newSite(t)
	for _, next := range []string{"https://evil.example", "//evil.example", `/\evil.example`, "/\t/evil.example", "javascript:alert(1)", "/" + strings.Repeat("a", 5000)} {
		b := w.browser()
		resp, text := b.get(w.follow(b, withNext(startPath, next)))
		require.Equal(t, http.StatusOK, resp.StatusCode, text)
		require.Contains(t, text, `content="0; url=/"`)
		require.NotContains(t, text, "evil")
	}
}

func TestCodeReplay(t *testing.T) {
	w := newSite(t)
	b := w.browser()
	back := w.follow(b, startPath)
	kept := w.cookie(b, attemptCookie)
	resp, _ := b.get(back)
	require.Equal(t, http.StatusOK, resp.StatusCode)
	w.refusedAt(b, back, http.StatusBadRequest, notBegun)
	// Whoever has the cookie too has an attempt that is spent, and at another process meets the provider, which takes a code once.
	thief := w.browser()
	u, err := url.Parse(w.url)
	require.NoError(t, err)
	thief.c.Jar.SetCookies(u, []*http.Cookie{{Name: attemptCookie, Value: kept}})
	w.refusedAt(thief, back, http.StatusBadRequest, notBegun)
	w.restart()
	thief.c.Jar.SetCookies(u, []*http.Cookie{{Name: attemptCookie, Value: kept}})
	w.refusedAt(thief, back, http.StatusUnauthorized, "the issuer has answered")

	// An attempt ends after ten minutes, whatever the browser keeps.
	late := w.browser()
	back = w.follow(late, startPath)
	var a attempt
	ok, err := w.sessions.sealer.open(t.Context(), attemptCookie, w.cookie(late, attemptCookie), &a)
	require.NoError(t, err)
	require.True(t, ok)
	a.Began = time.Now().Add(-attemptLife - time.Second)
	late.c.Jar.SetCookies(u, []*http.Cookie{{Name: attemptCookie, Value: w.seal(attemptCookie, a)}})
	w.refusedAt(late, back, http.StatusBadRequest, notBegun)
}

// The verifier of PKCE stays in the browser that began: a code alone is worth nothing.
func TestAStolenCodeIsWorthNothing(t *testing.T) {
	w := newSite(t)
	victim, thief := w.browser(), w.browser()
	stolen, err := url.Parse(w.follow(victim, startPath))
	require.NoError(t, err)
	own, err := url.Parse(w.follow(thief, startPath))
	require.NoError(t, err)
	q := own.Query()
	q.Set("code", stolen.Query().Get("code"))
	w.refusedAt(thief, own.Path+"?"+q.Encode(), http.StatusUnauthorized, "the issuer has answered")
}

func TestMixedUpIssuers(t *testing.T) {
	w := newSite(t)
	b := w.browser()
	w.refusedAt(b, w.follow(b, startPath)+"&iss="+url.QueryEscape("https://evil.example"), http.StatusBadRequest, "from another issuer")
	// The answer of the issuer itself names it, or nobody.
	b = w.browser()
	resp, text := b.get(w.follow(b, startPath) + "&iss=" + url.QueryEscape(w.p.URL))
	require.Equal(t, http.StatusOK, resp.StatusCode, text)

	// A sign-in that was begun at an issuer before the configuration named this one.
	b = w.browser()
	back, err := url.Parse(w.follow(b, startPath))
	require.NoError(t, err)
	a := attempt{Attempt: access.Attempt{Issuer: "https://before.example", State: back.Query().Get("state")}, Began: time.Now()}
	u, err := url.Parse(w.url)
	require.NoError(t, err)
	b.c.Jar.SetCookies(u, []*http.Cookie{{Name: attemptCookie, Value: w.seal(attemptCookie, a)}})
	w.refusedAt(b, back.String(), http.StatusBadRequest, "from another issuer")
	require.Equal(t, http.StatusSeeOther, w.with(sessionCookie, w.seal(sessionCookie, session{Identity: &access.Identity{Issuer: "https://before.example", Name: "jwt:x", Groups: []string{"shop"}}, Began: time.Now(), Met: time.Now()})))
}

// Signing in always makes a new session, whatever cookie the browser came with.
func TestSessionFixation(t *testing.T) {
	w := newSite(t)
	attacker, victim := w.as("read"), w.browser()
	u, err := url.Parse(w.url)
	require.NoError(t, err)
	planted := w.cookie(attacker, sessionCookie)
	victim.c.Jar.SetCookies(u, []*http.Cookie{{Name: sessionCookie, Value: planted}})
	resp, _ := victim.get(w.follow(victim, startPath))
	require.Equal(t, http.StatusOK, resp.StatusCode)
	require.NotEqual(t, planted, w.cookie(victim, sessionCookie))
	_, text := victim.get("/find")
	require.Contains(t, text, "jwt:"+oidctest.Operator)
	_, text = attacker.get("/find")
	require.Contains(t, text, "read (read)", "the planted session is still the attacker's own")
}

func TestIDTokensThatAreRefused(t *testing.T) {
	w := newSite(t)
	w.sessions.beginning, w.sessions.failedRest = share.NewTurns(100, 0, 100), 0
	for name, c := range map[string]struct {
		change func(map[string]any)
		why    string
	}{
		"another nonce":       {func(c map[string]any) { c["nonce"] = "x" }, "belongs to another sign-in"},
		"no nonce":            {func(c map[string]any) { delete(c, "nonce") }, "belongs to another sign-in"},
		"another client":      {func(c map[string]any) { c["aud"] = "another" }, "not for our client"},
		"one for the API":     {func(c map[string]any) { c["aud"] = oidctest.Audience }, "not for our client"},
		"another's as well":   {func(c map[string]any) { c["aud"], c["azp"] = []string{ourName, "another"}, "another" }, "not for our client"},
		"another issuer":      {func(c map[string]any) { c["iss"] = "https://evil.example" }, "from another issuer"},
		"expired":             {func(c map[string]any) { c["exp"] = time.Now().Add(-time.Minute).Unix() }, "has expired"},
		"without an end":      {func(c map[string]any) { delete(c, "exp") }, "never ends"},
		"groups without role": {func(c map[string]any) { c["groups"] = []string{"others"} }, "none of the groups"},
		"no groups":           {func(c map[string]any) { delete(c, "groups") }, "no groups"},
		"no name":             {func(c map[string]any) { delete(c, "sub") }, "http.jwt.name-claim"},
	} {
		w.p.Change(c.change)
		b := w.browser()
		back := w.follow(b, startPath)
		resp, text := b.get(back)
		require.Contains(t, []int{http.StatusUnauthorized, http.StatusForbidden}, resp.StatusCode, name)
		require.Contains(t, text, c.why, name)
		require.Empty(t, w.cookie(b, sessionCookie), name)
	}
	w.p.Change(nil)
	w.signedIn()
}

// An ID token is for the console, and an access token for the API: neither does for the other.
func TestAnIDTokenIsNoTokenOfTheAPI(t *testing.T) {
	w := newSite(t)
	var text string
	w.p.Change(func(c map[string]any) { text = w.p.Sign(c) })
	w.signedIn()
	req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, w.url+"/api/v1/tasks", nil)
	require.NoError(t, err)
	req.Header.Set("Authorization", "Bearer "+text)
	resp, answer := w.browser().do(req)
	require.Equal(t, http.StatusUnauthorized, resp.StatusCode)
	require.Contains(t, answer, "http.jwt.audience")
}

func TestTheIssuerRefusesOrIsAway(t *testing.T) {
	w := newSite(t)
	b := w.browser()
	back, err := url.Parse(w.follow(b, startPath))
	require.NoError(t, err)
	kept := w.cookie(b, attemptCookie)
	again := func() *browser {
		b := w.browser()
		u, err := url.Parse(w.url)
		require.NoError(t, err)
		b.c.Jar.SetCookies(u, []*http.Cookie{{Name: attemptCookie, Value: kept}})
		w.sessions.spent.began = nil
		return b
	}
	denied := url.Values{"error": {"access_denied<script>"}, "error_description": {"<b>long</b>"}, "state": {back.Query().Get("state")}}
	b = again()
	w.refusedAt(b, access.CallbackPath+"?"+denied.Encode(), http.StatusUnauthorized, "access_denied&lt;script&gt;")
	w.p.Down.Store(true)
	w.refusedAt(again(), back.String(), http.StatusServiceUnavailable, "cannot be reached")
	require.Contains(t, logged(w.world), "gives no token for a sign-in")
	w.p.Down.Store(false)
	resp, text := again().get(back.String())
	require.Equal(t, http.StatusOK, resp.StatusCode, text)
}

// An attempt makes us ask the issuer once, whatever comes back with it.
func TestAnAttemptIsSpent(t *testing.T) {
	w := newSite(t)
	b := w.browser()
	back, err := url.Parse(w.follow(b, startPath))
	require.NoError(t, err)
	u, err := url.Parse(w.url)
	require.NoError(t, err)
	kept, asked := w.cookie(b, attemptCookie), w.p.Requests.Load()
	for i := range 20 {
		b.c.Jar.SetCookies(u, []*http.Cookie{{Name: attemptCookie, Value: kept}})
		resp, text := b.get(access.CallbackPath + "?code=guess&state=" + back.Query().Get("state"))
		require.Equal(t, i > 0, resp.StatusCode == http.StatusBadRequest, text)
	}
	require.Equal(t, asked+1, w.p.Requests.Load())
}

func TestSpentAttemptsAreBounded(t *testing.T) {
	var s spent
	began := time.Now()
	of := func(i int) attempt {
		return attempt{Attempt: access.Attempt{State: fmt.Sprint(i)}, Began: began.Add(time.Duration(i) * time.Millisecond)}
	}
	for i := range 3 * maxSpent {
		require.True(t, s.first(of(i)))
	}
	require.LessOrEqual(t, len(s.began), maxSpent)
	for i := range 3 * maxSpent {
		require.False(t, s.first(of(i)), "also one that is forgotten")
	}
	require.True(t, s.first(of(3*maxSpent)))
}

// Anybody can have us ask the issuer about codes that are none. Whoever comes from elsewhere waits for nobody, and whoever has begun nothing
// takes no place.
func TestSignInsWaitForTheirTurn(t *testing.T) {
	w := newSite(t)
	w.signedIn() // the issuer's keys are read
	cookies := make([]*http.Cookie, 2*peerEnding)
	for i := range cookies { // of an issuer that is not asked
		cookies[i] = &http.Cookie{Name: attemptCookie, Value: w.seal(attemptCookie, attempt{Attempt: access.Attempt{Issuer: "https://before.example", State: fmt.Sprint(i)}, Began: time.Now()})}
	}
	synctest.Test(t, func(t *testing.T) {
		send := func(h http.HandlerFunc, peer, query string, c *http.Cookie) (status int, took time.Duration) {
			out, r := httptest.NewRecorder(), httptest.NewRequest(http.MethodGet, access.CallbackPath+query, nil)
			if r.RemoteAddr = peer; c != nil {
				r.AddCookie(c)
			}
			began := time.Now()
			h(out, r)
			return out.Code, time.Since(began)
		}
		for range 100 {
			status, took := send(w.sessions.callback, "10.0.0.1:1", "?state=x", nil)
			require.Equal(t, []any{http.StatusBadRequest, time.Duration(0)}, []any{status, took})
		}
		for i := range peerEnding {
			_, took := send(w.sessions.callback, fmt.Sprint("10.0.0.1:", i+1), fmt.Sprint("?state=", i), cookies[i])
			require.Zero(t, took)
		}
		_, took := send(w.sessions.callback, "10.0.0.2:1", fmt.Sprint("?state=", peerEnding), cookies[peerEnding])
		require.Zero(t, took, "from elsewhere")
		status, took := send(w.sessions.callback, "10.0.0.1:9", fmt.Sprint("?state=", peerEnding+1), cookies[peerEnding+1])
		require.Equal(t, []any{http.StatusBadRequest, w.sessions.failedRest}, []any{status, took}, "behind those that failed")

		for i := range 3 * peerBegun {
			_, took := send(w.sessions.start, fmt.Sprint("[2001:db8::", i, "]:1"), "", nil)
			require.Equal(t, i > 0 && i%peerBegun == 0, took == time.Second, "%d: %v", i, took)
		}
		_, took = send(w.sessions.start, "[2001:db8:1::1]:1", "", nil)
		require.Zero(t, took)
		time.Sleep(time.Minute)
	})
}

// A removed group stops counting: in the file within a second, at the issuer with the next sign-in, which is an hour away at most.
func TestRightsThatAreTakenAway(t *testing.T) {
	w := newSite(t)
	b := w.signedIn()
	began := time.Now()
	var x session
	ok, err := w.sessions.sealer.open(t.Context(), sessionCookie, w.cookie(b, sessionCookie), &x)
	require.NoError(t, err)
	require.True(t, ok)
	require.Equal(t, []string{"shop"}, x.Identity.Groups, "of the groups only those that have a role")
	require.WithinDuration(t, began.Add(issuerSession), x.end(), time.Minute)
	x.Began = time.Now().Add(-issuerSession - time.Second)
	require.Equal(t, http.StatusSeeOther, w.with(sessionCookie, w.seal(sessionCookie, x)), "however it is used")

	w.p.SetGroups(oidctest.Operator, "office")
	again := w.signedIn()
	_, text := again.get("/find")
	require.Contains(t, text, "(read)")
	_, text = b.get("/find")
	require.Contains(t, text, "(operate)", "until the session ends")
	file, err := os.ReadFile(w.file)
	require.NoError(t, err)
	require.NoError(t, os.WriteFile(w.file, []byte(strings.ReplaceAll(string(file), "group: shop", "group: shop2")), 0o600))
	require.Eventually(t, func() bool { resp, _ := b.get("/find"); return resp.StatusCode == http.StatusSeeOther }, time.Minute, 50*time.Millisecond)
}

// Who reads the database, or a backup of it, can make no session of somebody whom the issuer knows.
func TestTheDatabaseAloneMakesNoSession(t *testing.T) {
	w := newSite(t)
	x := session{Identity: &access.Identity{Issuer: w.p.URL, Name: "jwt:evil", Groups: []string{"shop"}}, Began: time.Now(), Met: time.Now()}
	thief := sealer{common: w.sessions.cfg.Common, client: func() string { return "" }}
	sealed, err := thief.seal(t.Context(), sessionCookie, x)
	require.NoError(t, err)
	require.Equal(t, http.StatusSeeOther, w.with(sessionCookie, sealed))
	require.Equal(t, http.StatusOK, w.with(sessionCookie, w.seal(sessionCookie, x)))
}

func TestWithoutSignInThereIsNone(t *testing.T) {
	w := newWorld(t, true)
	b := w.browser()
	_, text := b.get("/sign-in")
	require.NotContains(t, text, "Sign in with")
	for _, path := range []string{startPath, access.CallbackPath + "?code=a&state=b"} {
		resp, _ := b.get(path)
		require.Equal(t, http.StatusSeeOther, resp.StatusCode)
		require.True(t, strings.HasPrefix(resp.Header.Get("Location"), "/sign-in"))
		require.Empty(t, resp.Header.Get("Set-Cookie"))
	}
}

// A secret that is wrong, and then put right in its file.
func TestTheSecretMayChange(t *testing.T) {
	secret := "geheim-wrong"
	w := newSite(t, func(c *access.Config) { c.SignIn.Secret = func() string { return secret } })
	b := w.browser()
	w.refusedAt(b, w.follow(b, startPath), http.StatusUnauthorized, "http.sign-in.client-secret")
	require.NotContains(t, logged(w.world), "geheim")
	secret = ourSecret
	w.signedIn()
}
