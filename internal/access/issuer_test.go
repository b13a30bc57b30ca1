package access

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/rsa"
	"crypto/tls"
	"crypto/x509"
	"encoding/base64"
	"encoding/json"
	"encoding/pem"
	"fmt"
	"maps"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-jose/go-jose/v4"
	"github.com/stretchr/testify/require"
	"go.uber.org/zap"
	"go.uber.org/zap/zaptest/observer"

	"github.com/notyet/notyet/internal/share"
	"github.com/notyet/notyet/test/oidctest"
)

// issued is a guard that accepts the tokens of a provider, and a clock that the test moves.
type issued struct {
	*Guard
	t        *testing.T
	provider *oidctest.Provider
	logs     *observer.ObservedLogs
	ahead    atomic.Int64
}

var teams = []Entry{
	{Group: "readers", Role: "read", Topics: Everything},
	{Group: "orders", Role: "operate", Topics: []string{"orders.*"}},
	{Group: "bills", Role: "operate", Topics: []string{"bills"}},
	{Group: "everything", Role: "operate", Topics: Everything},
	{Group: "root", Role: "admin", Topics: []string{"test.*"}},
	{Group: "viewers", Role: "read", Topics: Everything},
	{Group: "payments", Role: "operate", Topics: []string{"pay"}},
}

func newIssued(t *testing.T, change ...func(*JWT)) *issued {
	t.Helper()
	g := &issued{t: t, provider: oidctest.New(t)}
	core, logs := observer.New(zap.InfoLevel)
	g.logs = logs
	_, entry := NewToken("file", Read, Everything)
	cfg := JWT{Issuer: g.provider.URL, Audience: oidctest.Audience, GroupsClaim: "groups", NameClaim: "sub"}
	for _, c := range change {
		c(&cfg)
	}
	var err error
	g.Guard, err = New(Config{Tokens: tokensFile(t, append(teams, entry)...), JWT: cfg}, zap.New(core))
	require.NoError(t, err)
	g.tokens.issuer.now = func() time.Time { return time.Now().Add(time.Duration(g.ahead.Load())) }
	return g
}

func (g *issued) pass(d time.Duration) { g.ahead.Add(int64(d)) }

// ask returns the caller, or the refusal.
func (g *issued) ask(token string) (Caller, *refusal) {
	r := httptest.NewRequest(http.MethodGet, "/", nil)
	r.Header.Set("Authorization", "Bearer "+token)
	return g.admit(r)
}

func (g *issued) refused(token, why string, status int) {
	g.t.Helper()
	c, no := g.ask(token)
	require.NotNil(g.t, no, "%+v was admitted", c)
	require.Equal(g.t, why, no.why, no.detail)
	require.Equal(g.t, status, no.status)
	require.Equal(g.t, Caller{}, c)
}

// claims are those of a token that is right.
func (g *issued) claims() map[string]any {
	now := g.tokens.issuer.now()
	return map[string]any{"iss": g.provider.URL, "aud": oidctest.Audience, "sub": "alice", "groups": []string{"readers"}, "iat": now.Unix(), "exp": now.Add(time.Minute).Unix()}
}

func with(claims map[string]any, name string, value any) map[string]any {
	out := maps.Clone(claims)
	if out[name] = value; value == nil {
		delete(out, name)
	}
	return out
}

func TestTokensOfAProvider(t *testing.T) {
	g := newIssued(t)
	c, no := g.ask(g.provider.Token("shop", "orders"))
	require.Nil(t, no)
	require.Equal(t, "jwt:shop", c.Name)
	require.Equal(t, Operate, c.Role)
	require.True(t, c.Topic("orders.de"))
	require.False(t, c.Topic("bills"), "another tenant's topic")
	require.False(t, c.AllTopics())
	require.WithinDuration(t, time.Now().Add(5*time.Minute+jwtSkew), c.Until, time.Minute, "the provider's tokens live for 5 minutes")

	c, no = g.ask(g.provider.Token("file", "readers"))
	require.Nil(t, no)
	require.Equal(t, "jwt:file", c.Name, "a caller of the issuer is not the token of the same name")
	require.Error(t, CheckName("jwt:file"))
}

// A caller has the highest role of its groups, for the topics of those groups only.
func TestGroupsGiveRoleAndTopics(t *testing.T) {
	for name, c := range map[string]struct {
		groups []string
		role   Role
		topics []string
	}{
		"two of one role":          {[]string{"bills", "orders"}, Operate, []string{"orders.*", "bills"}},
		"one role, once for all":   {[]string{"orders", "everything", "bills"}, Operate, []string{"orders.*", "bills", "*"}},
		"all topics of less":       {[]string{"readers", "orders"}, Operate, []string{"orders.*"}},
		"the highest, few topics":  {[]string{"everything", "root"}, Admin, []string{"test.*"}},
		"less, later":              {[]string{"root", "viewers", "payments"}, Admin, []string{"test.*"}},
		"and others":               {[]string{"nothing", "readers", "x"}, Read, Everything},
		"case counts":              {[]string{"Readers"}, None, nil},
		"the beginning of another": {[]string{"reader"}, None, nil},
	} {
		got, ok := checked(t, teams...).granted(c.groups)
		require.Equal(t, c.role != None, ok, name)
		require.Equal(t, c.role, got.Role, name)
		require.Equal(t, c.topics, got.Topics, name)
	}
}

// A caller with several groups of a role has the tenant and the pace of the first in the file. Requests for a group's topics
// go through that group's intake.
func TestGroupsGiveTenantAndIntake(t *testing.T) {
	all := checked(t, Entry{Group: "shop", Role: "operate", Topics: []string{"shop.*"}, Tenant: "shops", Intake: "in.shop", RequestsPerSecond: new(5)},
		Entry{Group: "bank", Role: "operate", Topics: []string{"bank", "shop.mail"}, Intake: "in.bank"}, Entry{Group: "free", Role: "operate", Topics: []string{"bank"}})
	c, _ := all.granted([]string{"bank", "shop"})
	require.EqualValues(t, 5, c.pace.Limit())
	require.Equal(t, share.Account{Tenant: "shops", Token: "x"}, named(c).Account())
	through := func(c Caller, topic string) (out []string) {
		for _, intake := range []string{"in.shop", "in.bank", "in.other"} {
			if c.Through(topic, intake) {
				out = append(out, intake)
			}
		}
		return out
	}
	for topic, want := range map[string][]string{"shop.orders": {"in.shop"}, "shop.mail": {"in.shop", "in.bank"}, "bank": {"in.bank"}, "": nil, "other": nil} {
		require.Equal(t, want, through(c, topic), topic)
	}
	c, _ = all.granted([]string{"bank", "free"})
	require.Len(t, through(c, "bank"), 3, "one of the groups allows any")
	require.Equal(t, share.Account{Tenant: "topics bank shop.mail", Token: "x"}, named(c).Account())
	require.Len(t, through(Caller{}, "bank"), 3, "without tokens")
}

func named(c Caller) Caller {
	c.Name = "x"
	return c
}

func checked(t *testing.T, list ...Entry) (all entries) {
	t.Helper()
	for _, e := range list {
		c, err := e.check()
		require.NoError(t, err)
		all = append(all, c)
	}
	return all
}

func TestTokensThatAreRefused(t *testing.T) {
	g := newIssued(t)
	_, no := g.ask(g.provider.Sign(g.claims()))
	require.Nil(t, no)
	id, private := g.provider.Key()
	stranger, err := rsa.GenerateKey(rand.Reader, 2048)
	require.NoError(t, err)
	curve, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	require.NoError(t, err)
	now := time.Now()
	right := g.claims()
	sign := g.provider.Sign
	public, err := x509.MarshalPKIXPublicKey(&private.PublicKey)
	require.NoError(t, err)
	part := func(v any) string {
		text, err := json.Marshal(v)
		require.NoError(t, err)
		return base64.RawURLEncoding.EncodeToString(text)
	}
	pieces := strings.Split(sign(right), ".")
	none := part(map[string]any{"alg": "none", "kid": id}) + "." + part(right) + "."
	for name, c := range map[string]struct {
		token, why string
		status     int
	}{
		"another issuer":             {sign(with(right, "iss", g.provider.URL+"/")), "issuer", 401},
		"no issuer":                  {sign(with(right, "iss", nil)), "issuer", 401},
		"another audience":           {sign(with(right, "aud", "https://other.example")), "audience", 401},
		"no audience":                {sign(with(right, "aud", nil)), "audience", 401},
		"an audience that begins so": {sign(with(right, "aud", oidctest.Audience+".evil.example")), "audience", 401},
		"expired":                    {sign(with(right, "exp", now.Add(-jwtSkew-2*time.Second).Unix())), "expired", 401},
		"without end":                {sign(with(right, "exp", nil)), "malformed", 401},
		"an end that overflows":      {sign(with(right, "exp", 1e300)), "malformed", 401},
		"an end in words":            {sign(with(right, "exp", "2099-01-01")), "malformed", 401},
		"not yet valid":              {sign(with(right, "nbf", now.Add(jwtSkew+10*time.Second).Unix())), "not_yet_valid", 401},
		"made in the future":         {sign(with(right, "iat", now.Add(time.Hour).Unix())), "not_yet_valid", 401},
		"no groups":                  {sign(with(right, "groups", nil)), "no_role", 403},
		"a group without a role":     {sign(with(right, "groups", []string{"others"})), "no_role", 403},
		"groups that are none":       {sign(with(right, "groups", map[string]any{"readers": 1})), "no_role", 403},
		"groups of other types":      {sign(with(right, "groups", []any{1, nil, []string{"readers"}})), "no_role", 403},
		"several groups in one text": {sign(with(right, "groups", "others readers")), "no_role", 403},
		"no name":                    {sign(with(right, "sub", nil)), "malformed", 401},
		"an empty name":              {sign(with(right, "sub", "")), "malformed", 401},
		"a long name":                {sign(with(right, "sub", strings.Repeat("a", maxJWTName+1))), "malformed", 401},
		"a name of two lines":        {sign(with(right, "sub", "alice\nroot")), "malformed", 401},
		"a name that is a number":    {sign(with(right, "sub", 7)), "malformed", 401},
		"too large":                  {sign(with(right, "x", strings.Repeat("a", maxJWT))), "malformed", 401},
		"a large header":             {part(map[string]any{"alg": "RS256", "kid": id, "x": strings.Repeat("a", maxJWTHeader)}) + "." + pieces[1] + "." + pieces[2], "malformed", 401},
		"no JSON":                    {pieces[0] + "." + base64.RawURLEncoding.EncodeToString([]byte("{")) + "." + pieces[2], "signature", 401},
		"no JSON, another key":       {part(map[string]any{"alg": "RS256", "kid": "other"}) + "." + base64.RawURLEncoding.EncodeToString([]byte("{")) + "." + pieces[2], "malformed", 401},
		"deep JSON":                  {pieces[0] + "." + base64.RawURLEncoding.EncodeToString([]byte(strings.Repeat("[", 10_000))) + "." + pieces[2], "signature", 401},
		"deep JSON, another key":     {part(map[string]any{"alg": "RS256", "kid": "other"}) + "." + base64.RawURLEncoding.EncodeToString([]byte(strings.Repeat("[", 10_000))) + "." + pieces[2], "malformed", 401},
		"another payload":            {pieces[0] + "." + part(with(right, "groups", []string{"root"})) + "." + pieces[2], "signature", 401},
		"no signature":               {pieces[0] + "." + pieces[1] + ".", "signature", 401},
		"dots":                       {"..", "algorithm", 401},
		"one dot":                    {"eyJ.x", "wrong_token", 401},
		"encrypted":                  {"a.b.c.d.e", "wrong_token", 401},
		"a notice of a sign-out":     {oidctest.Sign(t, jose.RS256, private, id, "logout+jwt", right), "malformed", 401},
		"a stranger's key":           {oidctest.Sign(t, jose.RS256, stranger, "stranger", "JWT", right), "unknown_key", 401},
		"a stranger's, our id":       {oidctest.Sign(t, jose.RS256, stranger, id, "JWT", right), "signature", 401},
		"another algorithm, our id":  {oidctest.Sign(t, jose.ES256, curve, id, "JWT", right), "unknown_key", 401},
		"PS, where the key is RS":    {oidctest.Sign(t, jose.PS256, private, id, "JWT", right), "unknown_key", 401},
		"alg none":                   {none, "algorithm", 401},
		"alg None":                   {part(map[string]any{"alg": "None", "kid": id}) + "." + part(right) + "." + pieces[2], "algorithm", 401},
		"HS256 with the public key":  {oidctest.Sign(t, jose.HS256, pem.EncodeToMemory(&pem.Block{Type: "PUBLIC KEY", Bytes: public}), id, "JWT", right), "algorithm", 401},
		"HS256 with the modulus":     {oidctest.Sign(t, jose.HS256, private.N.Bytes(), id, "JWT", right), "algorithm", 401},
	} {
		t.Run(name, func(t *testing.T) {
			g.t = t
			g.refused(c.token, c.why, c.status)
			_, no := g.ask(c.token)
			for piece := range strings.SplitSeq(c.token, ".") {
				if len(piece) > 3 {
					require.NotContains(t, no.detail, piece)
				}
			}
			require.NotContains(t, no.detail, "alice")
			require.NotContains(t, no.detail, "others")
		})
	}
	for _, algorithm := range algorithms {
		require.NotContains(t, []string{"none", "HS256", "HS384", "HS512"}, string(algorithm))
	}
}

// Claims of the largest size that nobody has signed are not built in memory. Those that the issuer has signed are.
func TestClaimsOfStrangersAreHardlyRead(t *testing.T) {
	g := newIssued(t)
	claims := with(g.claims(), "x", make([]struct{}, 3500))
	signed := g.provider.Sign(claims)
	require.Less(t, len(signed), maxJWT)
	_, no := g.ask(signed)
	require.Nil(t, no)
	pieces := strings.Split(signed, ".")
	header := func(id string) string {
		return base64.RawURLEncoding.EncodeToString(fmt.Appendf(nil, `{"alg":"RS256","kid":%q}`, id))
	}
	id, _ := g.provider.Key()
	for token, why := range map[string]string{header(id) + "." + pieces[1] + "." + pieces[2]: "signature", header("another") + "." + pieces[1] + "." + pieces[2]: "unknown_key"} {
		g.refused(token, why, 401)
		began := time.Now()
		require.Less(t, testing.AllocsPerRun(100, func() { _, _ = g.ask(token) }), 500., why)
		t.Log(why, time.Since(began)/100)
	}
	require.Greater(t, testing.AllocsPerRun(10, func() { _, _ = g.ask(signed) }), 3500., "which shows something above")
}

func TestClocksDifferALittle(t *testing.T) {
	g := newIssued(t)
	now := time.Now()
	for name, claims := range map[string]map[string]any{
		"behind": with(g.claims(), "exp", now.Add(-jwtSkew+5*time.Second).Unix()),
		"ahead":  with(g.claims(), "nbf", now.Add(jwtSkew-5*time.Second).Unix()),
	} {
		_, no := g.ask(g.provider.Sign(claims))
		require.Nil(t, no, name)
	}
	token := g.provider.Sign(g.claims())
	g.pass(time.Hour)
	_, no := g.ask(token)
	require.Equal(t, "expired", no.why)
	require.Contains(t, no.detail, g.tokens.issuer.now().UTC().Format("2006-01-02T15"), "an operator sees whose clock is wrong")
}

func TestClaimsHaveOtherNames(t *testing.T) {
	g := newIssued(t)
	for name, c := range map[string]struct {
		groups string
		claims map[string]any
	}{
		"nested":       {"realm_access.roles", map[string]any{"realm_access": map[string]any{"roles": []string{"readers"}}}},
		"dots in it":   {"https://shop.example/groups", map[string]any{"https://shop.example/groups": []string{"readers"}}},
		"one text":     {"role", map[string]any{"role": "readers"}},
		"scopes":       {"scope", map[string]any{"scope": "openid readers"}},
		"several auds": {"groups", map[string]any{"groups": []string{"readers"}, "aud": []string{"x", oidctest.Audience}}},
	} {
		g.tokens.issuer.cfg.GroupsClaim, g.tokens.issuer.cfg.NameClaim = c.groups, "email"
		claims := with(with(g.claims(), "groups", nil), "email", "Älice B@shop.example")
		maps.Copy(claims, c.claims)
		caller, no := g.ask(g.provider.Sign(claims))
		require.Nil(t, no, name)
		require.Equal(t, "jwt:Älice B@shop.example", caller.Name)
		require.Equal(t, Read, caller.Role)
	}
}

// Whatever strangers send, the issuer is asked for keys once in keysPause.
func TestAnotherKey(t *testing.T) {
	g := newIssued(t)
	before := g.provider.Token("shop", "readers")
	_, no := g.ask(before)
	require.Nil(t, no)
	asked := g.provider.Requests.Load()

	g.provider.Rotate()
	after := g.provider.Sign(g.claims())
	stranger, err := rsa.GenerateKey(rand.Reader, 2048)
	require.NoError(t, err)
	for i := range 50 {
		g.refused(oidctest.Sign(t, jose.RS256, stranger, fmt.Sprint("stranger", i), "JWT", g.claims()), "unknown_key", 401)
		g.refused(after, "unknown_key", 401)
	}
	require.Equal(t, asked, g.provider.Requests.Load())
	_, no = g.ask(before)
	require.Nil(t, no, "nobody has read that the key is gone")

	g.pass(keysPause)
	var all sync.WaitGroup
	for range 20 { // all of them wait for one attempt
		all.Go(func() {
			r := httptest.NewRequest(http.MethodGet, "/", nil)
			r.Header.Set("Authorization", "Bearer "+after)
			if _, no := g.admit(r); no != nil {
				t.Error(no.detail)
			}
		})
	}
	all.Wait()
	require.Equal(t, asked+2, g.provider.Requests.Load(), "one of the document and one of the keys")
	g.refused(before, "unknown_key", 401)
}

// A key that the issuer has taken back is void at the first request behind keysYoung, however long nobody asked: also by many at once.
func TestAKeyThatIsTakenBack(t *testing.T) {
	for _, idle := range []time.Duration{keysYoung + time.Second, 24 * time.Hour, 30 * 24 * time.Hour} {
		g := newIssued(t)
		_, no := g.ask(g.provider.Sign(g.claims()))
		require.Nil(t, no)
		g.pass(idle)
		stolen := g.provider.Sign(g.claims())
		g.provider.Rotate()
		asked := g.provider.Requests.Load()
		var all sync.WaitGroup
		for range 20 {
			all.Go(func() {
				if c, no := g.ask(stolen); no == nil || no.why != "unknown_key" {
					t.Errorf("%v later: %+v %+v", idle, c, no)
				}
			})
		}
		all.Wait()
		require.Equal(t, asked+2, g.provider.Requests.Load(), "one of the document and one of the keys")
	}
}

// fakeIssuer publishes one key, or does not answer, in the bubble's time.
type fakeIssuer struct {
	mu    sync.Mutex
	away  bool
	asked []time.Time
}

// keys are those that the issuer publishes.
func (f *fakeIssuer) keys(maxAge time.Duration, log *zap.Logger) *issuerKeys {
	k := newIssuerKeys(JWT{KeysMaxAge: maxAge}, time.Now, log)
	k.fetch = func(context.Context) (discovery, []jose.JSONWebKey, error) {
		f.mu.Lock()
		f.asked = append(f.asked, time.Now())
		away := f.away
		f.mu.Unlock()
		if away {
			time.Sleep(keysTimeout)
			return discovery{}, nil, context.DeadlineExceeded
		}
		return discovery{}, []jose.JSONWebKey{{KeyID: "a"}}, nil
	}
	return k
}

// goes away, or comes back.
func (f *fakeIssuer) goes(away bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.away = away
}

// times returns how long after begin the issuer was asked.
func (f *fakeIssuer) times(begin time.Time) (times []time.Duration) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, at := range f.asked {
		times = append(times, at.Sub(begin))
	}
	return times
}

// While the issuer does not answer, old keys are good up to their bound. One caller waits for the attempt, and the others do not.
func TestOldKeysHaveABound(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		core, logs := observer.New(zap.InfoLevel)
		issuer := &fakeIssuer{}
		k := issuer.keys(2*time.Hour, zap.New(core))
		took := func(want error, least, most time.Duration) {
			t.Helper()
			began := time.Now()
			_, err := k.find(t.Context(), "a", "RS256")
			require.ErrorIs(t, err, want)
			waited := time.Since(began)
			require.True(t, waited >= least && waited <= most, "waited %v", waited)
		}
		asked := func() int { return len(issuer.times(time.Now())) }
		took(nil, 0, 0)
		issuer.goes(true)
		time.Sleep(keysYoung)
		took(nil, 0, 0)
		require.Equal(t, 1, asked())
		time.Sleep(time.Second)
		took(nil, keysTimeout, keysTimeout)
		require.Equal(t, 2, asked())
		for range 100 {
			time.Sleep(time.Minute)
			took(nil, 0, 0)
		}
		time.Sleep(20 * time.Minute)
		took(errIssuerAway, 0, keysTimeout)
		require.Equal(t, 1, logs.FilterLevelExact(zap.ErrorLevel).Len())
		issuer.goes(false)
		time.Sleep(keysPause)
		took(nil, 0, 0)
		k.mu.Lock()
		k.now = func() time.Time { return time.Now().Round(0).Add(3 * time.Hour) }
		k.mu.Unlock()
		issuer.goes(true)
		took(errIssuerAway, keysTimeout, keysTimeout) // the machine slept, and the clock that is never set stood still
	})
}

// The keys are read in time, asked for or not, and soon again where that has failed.
func TestKeysAreReadInTime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		began, issuer := time.Now(), &fakeIssuer{}
		k := issuer.keys(0, zap.NewNop())
		go k.keep(ctx)
		time.Sleep(9 * time.Minute)
		require.Equal(t, []time.Duration{0, keysEvery, 2 * keysEvery}, issuer.times(began))
		issuer.goes(true)
		time.Sleep(4 * time.Minute)
		require.Greater(t, len(issuer.times(began)), 6, "every %v", keysPause)
		require.Positive(t, k.unread())
		issuer.goes(false)
		time.Sleep(2 * keysPause)
		require.Zero(t, k.unread())
		_, err := k.find(ctx, "a", "RS256")
		require.NoError(t, err)
		cancel()
	})
}

func TestTheIssuerIsAway(t *testing.T) {
	g := newIssued(t)
	token := g.provider.Sign(with(g.claims(), "exp", time.Now().Add(24*time.Hour).Unix()))
	g.provider.Down.Store(true)
	g.refused(token, "issuer_away", 503)
	g.pass(time.Minute)
	require.GreaterOrEqual(t, gauge(t, g.Guard, "notyet_http_issuer_unread_seconds"), 60.0)
	for range 20 {
		g.refused(token, "issuer_away", 503)
	}
	require.Equal(t, 1, g.logs.FilterLevelExact(zap.ErrorLevel).Len(), "an outage is one line")

	g.provider.Down.Store(false)
	g.refused(token, "issuer_away", 503) // the pause
	g.pass(keysPause)
	_, no := g.ask(token)
	require.Nil(t, no, "away at the start")
	require.Zero(t, gauge(t, g.Guard, "notyet_http_issuer_unread_seconds"))

	g.provider.Down.Store(true)
	for range 5 {
		g.pass(11 * time.Minute)
		_, no = g.ask(token)
		require.Nil(t, no, "away later: the keys that were read stay in force for a while")
	}
	require.Equal(t, 2, g.logs.FilterLevelExact(zap.ErrorLevel).Len())
	g.pass(6 * time.Minute)
	g.refused(token, "issuer_away", 503)
	g.provider.Rotate()
	g.pass(keysPause)
	g.refused(g.provider.Sign(g.claims()), "issuer_away", 503)
	g.provider.Down.Store(false)
	g.pass(keysPause)
	_, no = g.ask(g.provider.Sign(g.claims()))
	require.Nil(t, no)
}

// An issuer that never answers, or answers nonsense, refuses its own callers only.
func TestTheIssuerAnswersNonsense(t *testing.T) {
	var say atomic.Value
	fake := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		say.Load().(func(http.ResponseWriter, *http.Request))(w, r)
	}))
	t.Cleanup(fake.Close)
	document := fmt.Sprintf(`{"issuer":%q,"jwks_uri":%q}`, fake.URL, fake.URL+"/keys")
	keys := func(text string) func(http.ResponseWriter, *http.Request) {
		return func(w http.ResponseWriter, r *http.Request) {
			if r.URL.Path == "/keys" {
				_, _ = w.Write([]byte(text))
				return
			}
			_, _ = w.Write([]byte(document))
		}
	}
	g := newIssued(t, func(j *JWT) { j.Issuer = fake.URL })
	private := []byte("a-symmetric-key-that-the-issuer-should-not-publish")
	for name, c := range map[string]struct {
		say  func(http.ResponseWriter, *http.Request)
		want string
	}{
		"silence": {func(_ http.ResponseWriter, r *http.Request) { <-r.Context().Done() }, "deadline"},
		"another issuer": {func(w http.ResponseWriter, _ *http.Request) {
			_, _ = w.Write([]byte(`{"issuer":"https://evil.example"}`))
		}, "evil.example"},
		"no JSON":  {func(w http.ResponseWriter, _ *http.Request) { _, _ = w.Write([]byte("<html>")) }, "JSON"},
		"an error": {func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(500) }, "500"},
		"another place": {func(w http.ResponseWriter, r *http.Request) {
			http.Redirect(w, r, "http://127.0.0.1:1/", http.StatusFound)
		}, "302"},
		"without an end":    {func(w http.ResponseWriter, _ *http.Request) { _, _ = w.Write(make([]byte, maxKeys+2)) }, "larger"},
		"no key":            {keys(`{"keys":[]}`), "no public key"},
		"no keys":           {keys(`{}`), "no public key"},
		"a symmetric key":   {keys(`{"keys":[{"kty":"oct","kid":"k","k":"` + base64.RawURLEncoding.EncodeToString(private) + `"}]}`), "no public key"},
		"a kind of its own": {keys(`{"keys":[{"kty":"XX","kid":"k"}, 7]}`), "no public key"},
	} {
		t.Run(name, func(t *testing.T) {
			g.t = t
			g.logs.TakeAll()
			g.tokens.issuer.keys.failed = time.Time{} // a line for each
			say.Store(c.say)
			if g.tokens.issuer.keys.timeout = keysTimeout; name == "silence" {
				g.tokens.issuer.keys.timeout = 100 * time.Millisecond
			}
			g.pass(keysPause)
			id, key := g.provider.Key()
			g.refused(oidctest.Sign(t, jose.RS256, key, id, "JWT", with(g.claims(), "iss", fake.URL)), "issuer_away", 503)
			line := g.logs.FilterLevelExact(zap.ErrorLevel).All()
			require.Len(t, line, 1)
			require.Contains(t, strings.ToLower(fmt.Sprint(line[0].ContextMap()["error"])), strings.ToLower(c.want))
		})
	}
}

// The authority of the issuer's certificate may change while the service runs.
func TestTheIssuersCertificateIsVerified(t *testing.T) {
	var issuer string
	var key jose.JSONWebKey
	server := httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		_ = json.NewEncoder(w).Encode(map[string]any{"issuer": issuer, "jwks_uri": issuer + "/keys", "keys": []jose.JSONWebKey{key}})
	}))
	t.Cleanup(server.Close)
	issuer = server.URL
	var authority atomic.Pointer[x509.CertPool]
	authority.Store(x509.NewCertPool())
	g := newIssued(t, func(j *JWT) {
		j.Issuer, j.TLS = issuer, func() *tls.Config { return &tls.Config{RootCAs: authority.Load(), MinVersion: tls.VersionTLS12} }
	})
	id, private := g.provider.Key()
	key = jose.JSONWebKey{Key: &private.PublicKey, KeyID: id}
	token := g.provider.Sign(with(g.claims(), "iss", issuer))
	g.refused(token, "issuer_away", 503)
	require.Contains(t, fmt.Sprint(g.logs.FilterLevelExact(zap.ErrorLevel).All()[0].ContextMap()["error"]), "certificate")
	pool := x509.NewCertPool()
	pool.AddCert(server.Certificate())
	authority.Store(pool)
	g.pass(keysPause)
	_, no := g.ask(token)
	require.Nil(t, no)
}

// A refusal is counted by its reason, and logged without anything of the token.
func TestRefusedJWTsAreCountedAndLogged(t *testing.T) {
	g := newIssued(t)
	token := g.provider.Sign(with(g.claims(), "groups", []string{"others"}))
	r := httptest.NewRequest(http.MethodGet, "/api/v1/tasks", nil)
	r.Header.Set("Authorization", "Bearer "+token)
	w := httptest.NewRecorder()
	g.Handler(http.NotFoundHandler()).ServeHTTP(w, r)
	require.Equal(t, 403, w.Code)
	require.Equal(t, 1.0, gauge(t, g.Guard, "notyet_http_refused_total"))
	line := g.logs.FilterMessage("HTTP requests were refused").All()
	require.Len(t, line, 1)
	require.Equal(t, "no_role", line[0].ContextMap()["why"])
	require.NotContains(t, fmt.Sprint(line), token)
	_, err := g.SignIn(r, token)
	require.ErrorIs(t, err, errNoRole)
	require.Equal(t, 2.0, gauge(t, g.Guard, "notyet_http_refused_total"))
}

// What a caller waits for ends with its token.
func TestRequestsEndWithTheirToken(t *testing.T) {
	g := newIssued(t)
	end := time.Now().Add(time.Hour).Truncate(time.Second)
	var deadline time.Time
	h := g.Handler(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) { deadline, _ = r.Context().Deadline() }))
	r := httptest.NewRequest(http.MethodGet, "/?wait=30s", nil)
	r.Header.Set("Authorization", "Bearer "+g.provider.Sign(with(g.claims(), "exp", end.Unix())))
	h.ServeHTTP(httptest.NewRecorder(), r)
	require.True(t, end.Add(jwtSkew).Equal(deadline), deadline)

	synctest.Test(t, func(t *testing.T) { // it begins at 2000-01-01T00:00:00Z
		token, entry := NewToken("file", Read, Everything)
		entry.Expires = "2000-01-01T00:00:05Z"
		g, err := New(Config{Tokens: tokensFile(t, entry)}, zap.NewNop())
		require.NoError(t, err)
		r := httptest.NewRequest(http.MethodGet, "/?wait=30s", nil)
		r.Header.Set("Authorization", "Bearer "+token)
		g.Handler(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) { <-r.Context().Done() })).ServeHTTP(httptest.NewRecorder(), r)
		require.Equal(t, 5, time.Now().Second())
	})
}

func TestGroupsInTheTokensFile(t *testing.T) {
	cfg := JWT{Issuer: "https://login.example", Audience: "a", GroupsClaim: "groups", NameClaim: "sub"}
	_, err := New(Config{Tokens: tokensFile(t, Entry{Group: "a b", Role: "read", Topics: Everything}), JWT: cfg}, zap.NewNop())
	require.NoError(t, err)
	_, err = New(Config{Tokens: tokensFile(t, Entry{Group: "a", Role: "read", Topics: Everything})}, zap.NewNop())
	require.ErrorContains(t, err, "one with group needs http.jwt.issuer")
	for want, list := range map[string][]Entry{
		"read, operate or admin": {{Group: "a", Role: "root"}},
		"for all topics":         {{Group: "a", Role: "read", Topics: []string{}}},
		"no name":                {{Group: "a", Name: "b", Role: "read", Topics: Everything}},
		"ends their tokens":      {{Group: "a", Expires: "2030-01-01", Role: "read", Topics: Everything}},
		"give each its own":      {{Group: "a", Role: "read", Topics: Everything}, {Group: "a", Role: "admin", Topics: Everything}},
	} {
		_, err := parseTokens(yamlOf(t, list...))
		require.ErrorContains(t, err, want)
	}
}

// A group that is taken out of the file has no role any more.
func TestAGroupIsTakenOut(t *testing.T) {
	g := newIssued(t)
	token := g.provider.Sign(g.claims())
	_, no := g.ask(token)
	require.Nil(t, no)
	_, err := g.tokens.issuer.caller(t.Context(), token, checked(t, teams[1:]...))
	require.ErrorIs(t, err, errNoRole)
}
