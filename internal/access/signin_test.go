package access

import (
	"errors"
	"net/http"
	"net/http/httptest"
	"net/url"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/zap"
	"golang.org/x/oauth2"
)

// withDiscovery is a guard whose issuer has this discovery document.
func withDiscovery(t *testing.T, issuer string, d discovery) *Guard {
	t.Helper()
	_, entry := NewToken("file", Read, Everything)
	g, err := New(Config{
		Tokens: tokensFile(t, append(teams, entry)...), JWT: JWT{Issuer: issuer, GroupsClaim: "groups", NameClaim: "sub"},
		SignIn: SignIn{ClientID: "c", Secret: func() string { return "geheim" }, PublicURL: "https://notyet.example"},
	}, zap.NewNop())
	require.NoError(t, err)
	k := g.tokens.issuer.keys
	k.found, k.read, k.tried = d, time.Now(), time.Now()
	return g
}

func TestHowTheSecretIsSent(t *testing.T) {
	const at = "https://login.example"
	for want, methods := range map[oauth2.AuthStyle][]string{
		oauth2.AuthStyleInHeader: nil, // the default of OpenID Connect
		oauth2.AuthStyleInParams: {"private_key_jwt", "client_secret_post"},
	} {
		cfg, _, err := withDiscovery(t, at, discovery{Authorization: at + "/a", Token: at + "/t", AuthMethods: methods}).oauth(t.Context())
		require.NoError(t, err)
		require.Equal(t, want, cfg.Endpoint.AuthStyle)
		require.Equal(t, "https://notyet.example/sign-in/callback", cfg.RedirectURL)
	}
	cfg, _, err := withDiscovery(t, at, discovery{Authorization: at + "/a", Token: at + "/t", AuthMethods: []string{"client_secret_post", "client_secret_basic"}}).oauth(t.Context())
	require.NoError(t, err)
	require.Equal(t, oauth2.AuthStyleInHeader, cfg.Endpoint.AuthStyle)
}

// Neither browser nor secret goes anywhere in the clear.
func TestEndpointsThatAreNotHTTPS(t *testing.T) {
	const at = "https://login.example"
	for _, d := range []discovery{{}, {Authorization: at + "/a"}, {Authorization: "http://login.example/a", Token: at + "/t"}, {Authorization: at + "/a", Token: "http://login.example/t"}, {Authorization: "javascript:x", Token: at + "/t"}} {
		_, _, err := withDiscovery(t, at, d).BeginSignIn(httptest.NewRequest(http.MethodGet, "/", nil))
		require.ErrorIs(t, err, errNoEndpoints, d)
	}
}

// An issuer that always names itself in its answers (RFC 9207) is not mistaken for one that does not.
func TestAnAnswerWithoutItsIssuer(t *testing.T) {
	const at = "https://login.example"
	g := withDiscovery(t, at, discovery{Authorization: at + "/a", Token: at + "/t", NamesItself: true})
	a := Attempt{Issuer: at, State: "s"}
	answer := url.Values{"state": {"s"}, "error": {"access_denied"}}
	_, err := g.endSignIn(t.Context(), answer, a)
	require.ErrorIs(t, err, errOtherIssuer)
	answer.Set("iss", at)
	_, err = g.endSignIn(t.Context(), answer, a)
	require.ErrorContains(t, err, "access_denied")
}

func TestWithoutAnAudienceTheAPITakesNoJWT(t *testing.T) {
	g := newIssued(t, func(c *JWT) { c.Audience = "" })
	for _, aud := range []any{"", nil, []string{}, []string{""}, "x"} {
		g.refused(g.provider.Sign(with(g.claims(), "aud", aud)), "wrong_token", http.StatusUnauthorized)
	}
}

// What EachRefused hands on is not handed on again, unless it could not be kept.
func TestRefusalsAreMerged(t *testing.T) {
	_, entry := NewToken("file", Read, Everything)
	g, err := New(Config{Tokens: tokensFile(t, entry)}, zap.NewNop())
	require.NoError(t, err)
	var got []Refused
	keep := func(all []Refused) error { got = all; return nil }
	require.NoError(t, g.EachRefused(keep))
	require.Nil(t, got)
	refuse := func(peer string) {
		r := httptest.NewRequest(http.MethodGet, "/", nil)
		r.RemoteAddr = peer + ":1"
		_, err := g.SignIn(r, "x")
		require.Error(t, err)
	}
	refuse("10.0.0.1")
	refuse("10.0.0.2")
	require.Error(t, g.EachRefused(func([]Refused) error { refuse("10.0.0.3"); return errors.New("away") }))
	require.NoError(t, g.EachRefused(keep))
	require.Len(t, got, 1)
	require.Equal(t, Refused{At: "console", Why: "wrong_token", Peer: got[0].Peer, Count: 3}, got[0])
	got = nil
	require.NoError(t, g.EachRefused(keep))
	require.Nil(t, got)
}
