package access

import (
	"context"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/stretchr/testify/require"
	"go.uber.org/zap"
	"go.uber.org/zap/zaptest"
	"go.uber.org/zap/zaptest/observer"
	"go.yaml.in/yaml/v3"
)

// ask sends a request that came to the local address and names the host; it answers the status and
// the caller's name.
func ask(g *Guard, local, host string, prepare func(*http.Request)) (int, string) {
	r := httptest.NewRequest(http.MethodGet, "/", nil)
	r.Host = host
	at, err := net.ResolveTCPAddr("tcp", local)
	if err != nil {
		panic(err)
	}
	r = r.WithContext(context.WithValue(r.Context(), http.LocalAddrContextKey, net.Addr(at)))
	if prepare != nil {
		prepare(r)
	}
	w := httptest.NewRecorder()
	name := ""
	g.Handler(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) { name = From(r.Context()).Name })).ServeHTTP(w, r)
	return w.Code, name
}

func TestWithoutTokensOnlyLoopback(t *testing.T) {
	g, err := New(Config{Hosts: []string{"Proxy.example", "with.port:8443"}}, zap.NewNop())
	require.NoError(t, err)
	for _, c := range []struct {
		local, host string
		want        int
	}{
		{"127.0.0.1:8080", "127.0.0.1:8080", 200},
		{"127.0.0.1:8080", "localhost:8080", 200},
		{"127.0.0.1:8080", "LOCALHOST.", 200},
		{"127.0.0.1:8080", "127.8.8.8", 200},
		{"[::1]:8080", "[::1]:8080", 200},
		{"[::1]:8080", "[::1]", 200},
		{"[::ffff:127.0.0.1]:8080", "[::ffff:127.0.0.1]:8080", 200},
		{"127.0.0.1:8080", "proxy.example:443", 200},
		{"127.0.0.1:8080", "with.port:8443", 200},

		{"127.0.0.1:8080", "with.port:8444", 403},
		{"127.0.0.1:8080", "evil.example:8080", 403}, // DNS rebinding
		{"127.0.0.1:8080", "localhost.evil.example", 403},
		{"127.0.0.1:8080", "127.0.0.1.evil.example", 403},
		{"127.0.0.1:8080", "evil.localhost", 403},
		{"127.0.0.1:8080", "", 403},
		{"127.0.0.1:8080", "0.0.0.0:8080", 403},
		{"127.0.0.1:8080", "10.0.0.5:8080", 403},
		{"10.0.0.5:8080", "127.0.0.1:8080", 403}, // from outside, with a header that lies
		{"10.0.0.5:8080", "proxy.example", 403},
		{"[fe80::1]:8080", "localhost", 403},
	} {
		code, name := ask(g, c.local, c.host, nil)
		require.Equal(t, c.want, code, "%s to %s", c.host, c.local)
		require.Equal(t, code == 200, name == "local")
	}
	w := httptest.NewRecorder()
	g.Handler(http.NotFoundHandler()).ServeHTTP(w, httptest.NewRequest(http.MethodGet, "/", nil))
	require.Equal(t, 403, w.Code, "a request whose connection is unknown is from outside")
}

func tokensFile(t *testing.T, entries ...Entry) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "tokens.yaml")
	require.NoError(t, os.WriteFile(path, yamlOf(t, entries...), 0o600))
	return path
}

func yamlOf(t *testing.T, entries ...Entry) []byte {
	t.Helper()
	text, err := yaml.Marshal(entries)
	require.NoError(t, err)
	return text
}

func TestTokens(t *testing.T) {
	reader, readEntry := NewToken("reader", Read, []string{"orders.*"})
	admin, adminEntry := NewToken("root", Admin, Everything)
	g, err := New(Config{Tokens: tokensFile(t, readEntry, adminEntry)}, zap.NewNop())
	require.NoError(t, err)
	for _, c := range []struct {
		name   string
		header []string
		want   string // caller; empty: refused
	}{
		{"none", nil, ""},
		{"right", []string{"Bearer " + reader}, "reader"},
		{"another", []string{"bearer " + admin}, "root"},
		{"wrong", []string{"Bearer nyt_x"}, ""},
		{"empty", []string{"Bearer "}, ""},
		{"the hash instead of the token", []string{"Bearer " + adminEntry.SHA256}, ""},
		{"another scheme", []string{"Basic " + admin}, ""},
		{"no scheme", []string{admin}, ""},
		{"two", []string{"Bearer " + admin, "Bearer " + reader}, ""},
	} {
		code, name := ask(g, "10.0.0.5:8080", "anything.example", func(r *http.Request) { r.Header["Authorization"] = c.header })
		require.Equal(t, c.want, name, c.name)
		require.Equal(t, c.want == "", code == 401, c.name)
	}
	code, _ := ask(g, "127.0.0.1:8080", "127.0.0.1:8080", nil)
	require.Equal(t, 401, code, "with tokens, loopback needs one too")
}

func TestRefusalsAreProblemDocuments(t *testing.T) {
	_, e := NewToken("a", Read, Everything)
	g, err := New(Config{Tokens: tokensFile(t, e)}, zap.NewNop())
	require.NoError(t, err)
	w := httptest.NewRecorder()
	g.Handler(http.NotFoundHandler()).ServeHTTP(w, httptest.NewRequest(http.MethodGet, "/", nil))
	require.Equal(t, "application/problem+json", w.Header().Get("Content-Type"))
	require.Equal(t, `Bearer realm="notyet"`, w.Header().Get("WWW-Authenticate"))
	var p struct {
		Status int
		Detail string
	}
	require.NoError(t, json.Unmarshal(w.Body.Bytes(), &p))
	require.Equal(t, 401, p.Status)
	require.Contains(t, p.Detail, "Authorization: Bearer TOKEN")
}

func TestTokensAreReadAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		old, oldEntry := NewToken("old", Read, Everything)
		fresh, freshEntry := NewToken("fresh", Operate, Everything)
		path := tokensFile(t, oldEntry)
		tokens, err := OpenTokens(Config{Tokens: path}, zaptest.NewLogger(t))
		require.NoError(t, err)
		_, err = tokens.Caller(t.Context(), old)
		require.NoError(t, err)

		_, another := NewToken("other", Read, Everything)
		text, err := yaml.Marshal([]Entry{freshEntry, another})
		require.NoError(t, err)
		require.NoError(t, os.WriteFile(path, text, 0o600))
		time.Sleep(2 * time.Second)
		_, err = tokens.Caller(t.Context(), old)
		require.ErrorIs(t, err, errWrongToken, "one that was taken out is void")
		c, err := tokens.Caller(t.Context(), fresh)
		require.NoError(t, err)
		require.Equal(t, Operate, c.Role)

	})
}

// One file is for all services, which get an issuer or an intake one after the other. An entry that
// a service cannot use gives nothing there, and the others count on.
func TestEntriesForOtherServicesAreSetAside(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		token, entry := NewToken("a", Read, Everything)
		elsewhere, through := NewToken("b", Operate, []string{"x"})
		through.Intake = "in.new"
		path := tokensFile(t, entry)
		core, logs := observer.New(zap.WarnLevel)
		tokens, err := OpenTokens(Config{Tokens: path, Intakes: []string{"in.a"}}, zap.New(core))
		require.NoError(t, err)
		require.NoError(t, os.WriteFile(path, yamlOf(t, entry, through, Entry{Group: "g", Role: "admin", Topics: Everything}), 0o600))
		time.Sleep(2 * tokensGrace)
		_, _ = tokens.Caller(t.Context(), token) // who asks has it read again
		time.Sleep(2 * tokensGrace)
		_, err = tokens.Caller(t.Context(), token)
		require.NoError(t, err)
		_, err = tokens.Caller(t.Context(), elsewhere)
		require.ErrorIs(t, err, errWrongToken)
		lines := logs.TakeAll()
		require.Len(t, lines, 1)
		require.Equal(t, []any{"b", "group g"}, lines[0].ContextMap()["entries"])
	})
}

// Who changes the file is told whose rights have grown.
func TestGrownRightsAreLogged(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		token, entry := NewToken("a", Read, []string{"shop.*", "bank"})
		_, other := NewToken("b", Admin, Everything)
		other.Expires = "2100-01-01"
		bounded := Entry{Name: "d", SHA256: sumOf("d"), Role: "read", Topics: []string{"shop.*", "bank"}, Intake: "in.a", RequestsPerSecond: new(10)}
		path := tokensFile(t, entry, other, bounded)
		core, logs := observer.New(zap.WarnLevel)
		tokens, err := OpenTokens(Config{Tokens: path, Intakes: []string{"in.a", "in.b"}, JWT: JWT{Issuer: "https://login.example.com"}}, zap.New(core))
		require.NoError(t, err)
		_, third := NewToken("c", Read, []string{"x"})
		another := third
		another.SHA256 = strings.Repeat("0", 64)
		with := func(change func(*Entry)) Entry { e := entry; change(&e); return e }
		for name, c := range map[string]struct {
			entries []Entry
			want    []any
		}{
			"less":        {[]Entry{with(func(e *Entry) { e.Topics = []string{"bank"} })}, nil},
			"a topic":     {[]Entry{with(func(e *Entry) { e.Topics = append(e.Topics, "x") }), other}, []any{"a"}},
			"all topics":  {[]Entry{with(func(e *Entry) { e.Topics = Everything }), other}, []any{"a"}},
			"a role":      {[]Entry{with(func(e *Entry) { e.Role = "operate" }), other}, []any{"a"}},
			"new ones":    {[]Entry{entry, other, third, {Group: "g", Role: "read", Topics: []string{"x"}}}, []any{"c", "group g"}},
			"an end less": {[]Entry{entry, func() Entry { e := other; e.Expires = ""; return e }()}, []any{"b"}},
			"a secret":    {[]Entry{entry, other, another}, []any{"c"}},
			"an intake":   {[]Entry{entry, with(func(e *Entry) { e.Name, e.SHA256, e.Intake = "d", sumOf("d"), "in.b" })}, []any{"d"}},
			"any intake":  {[]Entry{entry, with(func(e *Entry) { e.Name, e.SHA256, e.Intake = "d", sumOf("d"), "" })}, []any{"d"}},
			"same intake": {[]Entry{entry, bounded, other}, nil},
			"a pace":      {[]Entry{entry, func() Entry { e := bounded; e.RequestsPerSecond = new(11); return e }()}, []any{"d"}},
			"any pace":    {[]Entry{entry, func() Entry { e := bounded; e.RequestsPerSecond = nil; return e }()}, []any{"d"}},
			"a slow one":  {[]Entry{entry, func() Entry { e := bounded; e.RequestsPerSecond = new(9); return e }()}, nil},
		} {
			require.NoError(t, os.WriteFile(path, yamlOf(t, entry, other, bounded), 0o600))
			time.Sleep(2 * time.Second)
			_, err := tokens.Caller(t.Context(), token)
			require.NoError(t, err)
			logs.TakeAll()
			require.NoError(t, os.WriteFile(path, yamlOf(t, c.entries...), 0o600))
			time.Sleep(2 * time.Second)
			_, _ = tokens.Caller(t.Context(), token)
			lines := logs.TakeAll()
			if c.want == nil {
				require.Empty(t, lines, name)
				continue
			}
			require.Len(t, lines, 1, name)
			require.Equal(t, c.want, lines[0].ContextMap()["entries"], name)
		}
	})
}

func sumOf(token string) string { return fmt.Sprintf("%x", sha256.Sum256([]byte(token))) }

// A token may send as many requests a second as its entry says. A refusal says when to come again. A change of
// the file begins no new second.
func TestRequestsPerSecond(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		token, entry := NewToken("a", Read, []string{"x"})
		free, other := NewToken("b", Read, []string{"x"})
		entry.RequestsPerSecond = new(10)
		path := tokensFile(t, entry, other)
		g, err := New(Config{Tokens: path}, zap.NewNop())
		require.NoError(t, err)
		ask := func(token string) (code int, again string) {
			w := httptest.NewRecorder()
			r := httptest.NewRequest(http.MethodGet, "/", nil)
			r.Header.Set("Authorization", "Bearer "+token)
			g.Handler(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {})).ServeHTTP(w, r)
			return w.Code, w.Header().Get("Retry-After")
		}
		served := func() (n int) {
			for range 100 {
				if code, again := ask(token); code == 200 {
					n++
				} else {
					require.Equal(t, []any{429, "1"}, []any{code, again})
				}
				code, _ := ask(free)
				require.Equal(t, 200, code, "another is not bound")
			}
			return n
		}
		require.Equal(t, 10, served())
		time.Sleep(500 * time.Millisecond)
		require.Equal(t, 5, served())
		other.Role = "operate"
		require.NoError(t, os.WriteFile(path, yamlOf(t, entry, other), 0o600))
		time.Sleep(time.Second)
		require.Equal(t, 10, served())
		require.Zero(t, gauge(t, g, "notyet_http_sign_ins_failed_total"))
		entry.RequestsPerSecond = new(1)
		require.NoError(t, os.WriteFile(path, yamlOf(t, entry, other), 0o600))
		time.Sleep(2 * time.Second)
		require.Equal(t, 1, served())
	})
}

// Wherever a file of tokens ends early, nobody can do more than by the whole of it.
func TestAFileThatEndsEarlyGivesNoMore(t *testing.T) {
	_, a := NewToken("a", Operate, []string{"shop.*", "bank.*"})
	a.Expires, a.Tenant, a.Intake, a.RequestsPerSecond = "2027-12-31", "shops", "in.a.more", new(100)
	text := string(yamlOf(t, a, Entry{Group: "g", Role: "operate", Topics: []string{"shop.*"}}))
	whole, err := parseTokens([]byte(text))
	require.NoError(t, err)
	require.True(t, strings.HasPrefix(text, `- topics: [shop.*, bank.*]`), text)
	read := 0
	for i := range text {
		part, err := parseTokens([]byte(text[:i]))
		if err != nil {
			continue
		}
		read++
		require.Empty(t, whole.gained(part), text[:i])
	}
	require.NotZero(t, read)
}

// A token is taken back by taking it out of the file. A mistake in doing so must not keep it in force.
func TestTokensEndWhenTheFileCannotBeUsed(t *testing.T) {
	for name, ruin := range map[string]func(path string) error{
		"emptied": func(path string) error { return os.Truncate(path, 0) },
		"deleted": os.Remove,
		"typo":    func(path string) error { return os.WriteFile(path, []byte("- {name: old, sha: x}"), 0o600) },
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				token, entry := NewToken("old", Read, Everything)
				path := tokensFile(t, entry)
				whole, err := os.ReadFile(path)
				require.NoError(t, err)
				g, err := New(Config{Tokens: path}, zap.NewNop())
				require.NoError(t, err)
				status := func() int {
					code, _ := ask(g, "10.0.0.5:8080", "h", func(r *http.Request) { r.Header.Set("Authorization", "Bearer "+token) })
					return code
				}
				require.Equal(t, 200, status())
				require.NoError(t, ruin(path))
				time.Sleep(2 * time.Second)
				require.Equal(t, 200, status(), "an editor that writes the file locks nobody out")
				require.Positive(t, gauge(t, g, "notyet_http_tokens_unusable_seconds"))
				time.Sleep(tokensGrace)
				require.Equal(t, 401, status())
				_, err = g.Caller(t.Context(), token)
				require.ErrorIs(t, err, errUnusable, "a session of the console ends too")
				require.Equal(t, 1.0, gauge(t, g, "notyet_http_refused_total"))

				require.NoError(t, os.WriteFile(path, whole, 0o600))
				time.Sleep(2 * time.Second)
				require.Equal(t, 200, status())
				require.Zero(t, gauge(t, g, "notyet_http_tokens_unusable_seconds"))
			})
		})
	}
}

// gauge is the sum of a metric's values.
func gauge(t *testing.T, g *Guard, name string) (sum float64) {
	t.Helper()
	reg := prometheus.NewRegistry()
	reg.MustRegister(g.Collectors()...)
	families, err := reg.Gather()
	require.NoError(t, err)
	for _, f := range families {
		for _, m := range f.GetMetric() {
			if f.GetName() == name {
				sum += m.GetGauge().GetValue() + m.GetCounter().GetValue()
			}
		}
	}
	return sum
}

func TestTokensExpire(t *testing.T) {
	synctest.Test(t, func(t *testing.T) { // it begins at 2000-01-01T00:00:00Z
		entries := make([]Entry, 3)
		tokens := make([]string, 3)
		for i, expires := range []string{"2000-01-02", "2000-01-02T02:00:00+01:00", ""} {
			tokens[i], entries[i] = NewToken(fmt.Sprint(i), Read, Everything)
			entries[i].Expires = expires
		}
		path := tokensFile(t, entries...)
		text, err := os.ReadFile(path)
		require.NoError(t, err) // as an operator writes it, a date has no quotes
		require.NoError(t, os.WriteFile(path, []byte(strings.ReplaceAll(string(text), `"`, "")), 0o600))
		known, err := OpenTokens(Config{Tokens: path}, zap.NewNop())
		require.NoError(t, err)
		valid := func() (out []bool) {
			for _, token := range tokens {
				_, err := known.Caller(t.Context(), token)
				require.True(t, err == nil || errors.Is(err, errExpired))
				out = append(out, err == nil)
			}
			return out
		}
		require.Equal(t, []bool{true, true, true}, valid())
		time.Sleep(24 * time.Hour)
		require.Equal(t, []bool{false, true, true}, valid())
		time.Sleep(time.Hour)
		require.Equal(t, []bool{false, false, true}, valid())
	})
}

// Without tokens, whoever a proxy on this machine serves would be an administrator.
func TestWithoutTokensNothingComesThroughAProxy(t *testing.T) {
	g, err := New(Config{Hosts: []string{"notyet.example"}}, zap.NewNop())
	require.NoError(t, err)
	for _, header := range []string{"Forwarded", "X-Forwarded-For", "X-Forwarded-Host", "X-Forwarded-Proto", "X-Forwarded-Anything", "X-Real-IP", "Via", "True-Client-IP", "CF-Connecting-IP"} {
		for _, host := range []string{"127.0.0.1:8080", "notyet.example"} {
			code, _ := ask(g, "127.0.0.1:8080", host, func(r *http.Request) { r.Header.Set(header, "") })
			require.Equal(t, 403, code, header)
		}
	}
	code, _ := ask(g, "127.0.0.1:8080", "127.0.0.1", func(r *http.Request) { r.Proto, r.ProtoMinor = "HTTP/1.0", 0 })
	require.Equal(t, 403, code, "nginx adds no header by default, and speaks HTTP/1.0")
	for origin, want := range map[string]int{
		"https://shop.example": 403, "http://127.0.0.1:8080": 200, "http://localhost:8080": 200, "https://notyet.example": 200, "http://[::1": 403,
	} {
		code, _ := ask(g, "127.0.0.1:8080", "127.0.0.1:8080", func(r *http.Request) { r.Header.Set("Origin", origin) })
		require.Equal(t, want, code, origin)
	}
	require.Equal(t, 21.0, gauge(t, g, "notyet_http_refused_total"))

	r := httptest.NewRequest(http.MethodGet, "/", nil)
	r.Host = "127.0.0.1"
	r.Header.Set("X-Forwarded-For", "10.0.0.1")
	r = r.WithContext(context.WithValue(r.Context(), http.LocalAddrContextKey, net.Addr(&net.TCPAddr{IP: net.IPv4(127, 0, 0, 1), Port: 8080})))
	w := httptest.NewRecorder()
	g.Handler(http.NotFoundHandler()).ServeHTTP(w, r)
	require.Equal(t, "application/problem+json", w.Header().Get("Content-Type"))
	require.Contains(t, w.Body.String(), "X-Forwarded-For")
	require.Contains(t, w.Body.String(), "http.tokens")
}

// A token that is guessed leaves a line in the log, and a thousand guesses no thousand lines.
func TestRefusalsAreLogged(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		_, entry := NewToken("a", Read, Everything)
		core, logs := observer.New(zap.WarnLevel)
		g, err := New(Config{Tokens: tokensFile(t, entry)}, zap.New(core))
		require.NoError(t, err)
		guess := func() {
			ask(g, "10.0.0.5:8080", "h", func(r *http.Request) { r.Header.Set("Authorization", "Bearer nyt_secret") })
		}
		for range 1000 {
			guess()
		}
		require.Equal(t, 1, logs.Len())
		time.Sleep(2 * time.Second)
		guess()
		require.Equal(t, 2, logs.Len())
		last := logs.All()[1].ContextMap()
		require.EqualValues(t, 1000, last["refused"])
		require.Equal(t, "wrong_token", last["why"])
		require.NotContains(t, fmt.Sprint(logs.All()), "secret")
		r := httptest.NewRequest(http.MethodPost, "/sign-in", nil)
		_, err = g.SignIn(r, "nyt_secret")
		require.ErrorIs(t, err, errWrongToken)
		ask(g, "10.0.0.5:8080", "h", func(*http.Request) {}) // who shows nothing guesses nothing
		require.Equal(t, 1003.0, gauge(t, g, "notyet_http_refused_total"))
		require.Equal(t, 1002.0, gauge(t, g, "notyet_http_sign_ins_failed_total"))
		time.Sleep(2 * time.Second)
		long := strings.Repeat("X", 60<<10)
		ask(g, "10.0.0.5:8080", "h", func(r *http.Request) { r.Method, r.URL.Path = long, "/"+long })
		require.Less(t, len(fmt.Sprint(logs.All()[2].ContextMap())), 500)
	})
}

func TestMistakesInTheTokensFile(t *testing.T) {
	sum := "9f86d081884c7d659a2feaa0c55ad015a3bf4f1b2b0b822cd15d6c15b0f00a08"
	for name, c := range map[string]struct{ text, want string }{
		"empty":             {"", "no token"},
		"no list":           {"name: a", "YAML list"},
		"unknown key":       {"- {name: a, sha256: " + sum + ", role: read, topic: x}", "topic"},
		"a token, no hash":  {"- {name: a, sha256: nyt_secret, role: read}", "64 hexadecimal digits"},
		"a token as role":   {"- {name: a, sha256: " + sum + ", role: nyt_secret}", "read, operate or admin"},
		"a token as name":   {"- {name: nyt_secret, sha256: x, role: read}", "64 hexadecimal digits"},
		"a token as key":    {"- {name: a, sha256: " + sum + ", role: read, nyt_secret: x}", "not found"},
		"a token alone":     {"- nyt_secret", "line 1"},
		"a bad expiry":      {"- {name: a, sha256: " + sum + ", role: read, expires: tomorrow, topics: ['*']}", "2027-01-31"},
		"unknown role":      {"- {name: a, sha256: " + sum + ", role: root}", "read, operate or admin"},
		"no name":           {"- {sha256: " + sum + ", role: read}", "name"},
		"no topics":         {"- {name: a, sha256: " + sum + ", role: read}", "for all topics"},
		"empty topics":      {"- {name: a, sha256: " + sum + ", role: read, topics: []}", "for all topics"},
		"topics: null":      {"- {name: a, sha256: " + sum + ", role: read, topics: null}", "for all topics"},
		"topics: ~":         {"- {name: a, sha256: " + sum + ", role: read, topics: ~}", "for all topics"},
		"topics: nothing":   {"- name: a\n  sha256: " + sum + "\n  role: read\n  topics:\n", "for all topics"},
		"topics: comments":  {"- name: a\n  sha256: " + sum + "\n  role: read\n  topics:\n  # - shop.*\n", "for all topics"},
		"topics: a blank":   {"- {name: a, sha256: " + sum + ", role: read, topics: ['']}", "is not a pattern"},
		"a group's topics":  {"- {group: a, role: read, topics: }", "for all topics"},
		"all and another":   {"- {name: a, sha256: " + sum + ", role: read, topics: ['*', shop]}", "write it alone"},
		"two documents":     {"- {name: a, sha256: " + sum + ", role: read, topics: ['*']}\n---\n[]", "a second YAML document"},
		"an empty second":   {"- {name: a, sha256: " + sum + ", role: read, topics: ['*']}\n---\n", "a second YAML document"},
		"a bad pattern":     {"- {name: a, sha256: " + sum + ", role: read, topics: ['[']}", "is not a pattern"},
		"two of one name":   {"- {name: a, sha256: " + sum + ", role: read, topics: ['*']}\n- {name: a, sha256: " + sum[:62] + "00, role: read, topics: ['*']}", "its own"},
		"no value":          {"- {name: a, sha256: " + sum + ", role: read, topics: ['*'], expires: }", "expires: has no value"},
		"an empty one":      {"- {name: a, sha256: " + sum + ", role: read, topics: [x], tenant: ''}", "tenant: has no value"},
		"a blank tenant":    {"- {name: a, sha256: " + sum + ", role: read, topics: [x], tenant: a b}", "without blanks"},
		"roots' tenant":     {"- {name: a, sha256: " + sum + ", role: admin, topics: ['*'], tenant: ops}", "a tenant of their own"},
		"an empty intake":   {"- {name: a, sha256: " + sum + ", role: read, topics: [x], intake: ~}", "intake: has no value"},
		"no such intake":    {"- {name: a, sha256: " + sum + ", role: read, topics: [x], intake: inn}", "one with intake a topic of intake.topics"},
		"none a second":     {"- {name: a, sha256: " + sum + ", role: read, topics: [x], requests-per-second: 0}", "remove the line for no bound"},
		"a pace of nothing": {"- {name: a, sha256: " + sum + ", role: read, topics: [x], requests-per-second: }", "requests-per-second: has no value"},
		"one hash of two":   {"- {name: a, sha256: " + sum + ", role: read, topics: ['*']}\n- {name: b, sha256: " + sum + ", role: admin, topics: ['*']}", "its own"},
		"a device, no file": {"", "larger"},
	} {
		t.Run(name, func(t *testing.T) {
			path := filepath.Join(t.TempDir(), "tokens.yaml")
			require.NoError(t, os.WriteFile(path, []byte(c.text), 0o600))
			if c.want == "larger" {
				path = "/dev/zero"
			}
			_, err := New(Config{Tokens: path}, zap.NewNop())
			require.ErrorContains(t, err, "http.tokens")
			require.ErrorContains(t, err, c.want)
			require.NotContains(t, err.Error(), "nyt_secret")
		})
	}
	_, err := New(Config{Tokens: "/nowhere.yaml"}, zap.NewNop())
	require.ErrorContains(t, err, "no such file")
}

func TestRolesAndTopics(t *testing.T) {
	require.False(t, Caller{}.May(None), "who has no role may nothing")
	for _, has := range []Role{None, Read, Operate, Admin} {
		for _, needs := range []Role{Read, Operate, Admin} {
			require.Equal(t, has >= needs, Caller{Role: has}.May(needs))
		}
	}
	c := Caller{Topics: []string{"orders", "bills.*"}}
	require.True(t, c.Topic("orders"))
	require.True(t, c.Topic("bills.de"))
	require.False(t, c.Topic("orders.de"))
	require.False(t, c.Topic(""))
	require.False(t, Caller{}.Topic("anything"), "nothing is not everything")
	require.False(t, Caller{}.AllTopics())
	for _, name := range []string{"orders", "https://a.example", ""} {
		require.True(t, Caller{Topics: Everything}.Topic(name), "with what is told of the whole installation")
	}
	require.False(t, Caller{Topics: []string{"?*"}}.Topic("https://a.example"))
	require.Equal(t, Caller{}, From(t.Context()))
}

// A part of a service that returns early ends the service.
func TestAGuardWithoutAnIssuerRunsUntilItsContextEnds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g, err := New(Config{}, zap.NewNop())
		require.NoError(t, err)
		ctx, cancel := context.WithCancel(t.Context())
		ended := make(chan struct{})
		go func() { defer close(ended); g.Run(ctx) }()
		synctest.Wait()
		select {
		case <-ended:
			t.Fatal("ended by itself")
		default:
		}
		cancel()
		<-ended
	})
}
