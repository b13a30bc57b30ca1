// Package oidctest runs an OpenID provider on 127.0.0.1 for tests: that of zitadel/oidc, with keys that can be
// exchanged, groups in its tokens, an operator who signs in without a password, and outages.
package oidctest

import (
	"context"
	"crypto/rand"
	"crypto/rsa"
	"crypto/sha256"
	"encoding/json"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/go-jose/go-jose/v4"
	"github.com/go-jose/go-jose/v4/jwt"
	"github.com/stretchr/testify/require"
	"github.com/zitadel/oidc/v3/example/server/storage"
	"github.com/zitadel/oidc/v3/pkg/oidc"
	"github.com/zitadel/oidc/v3/pkg/op"
)

// Audience is whom the provider's tokens are for.
const Audience = "https://notyet.example"

const secret = "a-secret"

// Operator is the sub of who signs in.
const Operator = "id1"

// Provider is a running provider.
type Provider struct {
	// URL is its issuer.
	URL string
	// Requests counts those that it got.
	Requests atomic.Int64
	// Down makes it cut every connection.
	Down atomic.Bool

	t  *testing.T
	mu sync.Mutex
	*storage.Storage
	clients  map[string]*storage.Client
	operator string // his name at the provider's page
	key      key
	groups   map[string][]string // by caller
	change   func(claims map[string]any)
}

// New starts a provider, which ends with the test.
func New(t *testing.T) *Provider {
	t.Helper()
	p := &Provider{t: t, groups: map[string][]string{}, clients: map[string]*storage.Client{}}
	var provider http.Handler
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		p.Requests.Add(1)
		if p.Down.Load() {
			panic(http.ErrAbortHandler)
		}
		switch r.URL.Path {
		case "/login/username":
			p.signIn(w, r)
		case "/oauth/token":
			p.token(w, r, provider)
		default:
			provider.ServeHTTP(w, r)
		}
	}))
	t.Cleanup(server.Close)
	p.URL = server.URL
	users := storage.NewUserStore(p.URL)
	p.operator = users.GetUserByID(Operator).Username
	p.Storage = storage.NewStorageWithClients(users, p.clients)
	p.Rotate()
	var err error
	provider, err = op.NewProvider(&op.Config{CryptoKey: sha256.Sum256([]byte("test")), CryptoKeyId: "test", CodeMethodS256: true}, p, op.StaticIssuer(p.URL), op.WithAllowInsecure(), op.WithLogger(slog.New(slog.DiscardHandler)))
	require.NoError(t, err)
	return p
}

// Client makes a client that may send browsers to the provider, which sends them back to the address. Call it before browsers come.
func (p *Provider) Client(id, secret, back string) {
	p.clients[id] = storage.WebClient(id, secret, back)
}

// SetGroups sets the groups of a caller, or of Operator, in ID tokens to come.
func (p *Provider) SetGroups(caller string, groups ...string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.groups[caller] = groups
}

// Change lets f change the claims of ID tokens to come. nil: they stay as they are.
func (p *Provider) Change(f func(claims map[string]any)) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.change = f
}

// signIn stands for the page at which the operator would give a password.
func (p *Provider) signIn(w http.ResponseWriter, r *http.Request) {
	id := r.FormValue("authRequestID")
	if err := p.CheckUsernamePassword(p.operator, "verysecure", id); err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	http.Redirect(w, r, "/authorize/callback?"+url.Values{"id": {id}}.Encode(), http.StatusFound)
}

// token changes what the provider answers.
func (p *Provider) token(w http.ResponseWriter, r *http.Request, provider http.Handler) {
	answer := httptest.NewRecorder()
	provider.ServeHTTP(answer, r)
	text := answer.Body.Bytes()
	p.mu.Lock()
	change := p.change
	p.mu.Unlock()
	var all map[string]any
	if change != nil && json.Unmarshal(text, &all) == nil && all["id_token"] != nil {
		var claims map[string]any
		if parsed, err := jwt.ParseSigned(all["id_token"].(string), []jose.SignatureAlgorithm{jose.RS256}); err == nil && parsed.UnsafeClaimsWithoutVerification(&claims) == nil {
			change(claims)
			all["id_token"] = p.Sign(claims)
			text, _ = json.Marshal(all)
		}
	}
	w.Header().Set("Content-Type", answer.Header().Get("Content-Type"))
	w.WriteHeader(answer.Code)
	_, _ = w.Write(text)
}

// SetUserinfoFromRequest implements op.CanSetUserinfoFromRequest.
func (p *Provider) SetUserinfoFromRequest(_ context.Context, info *oidc.UserInfo, request op.IDTokenRequest, _ []string) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	info.Subject = request.GetSubject()
	info.AppendClaims("groups", p.groups[request.GetSubject()])
	return nil
}

// Rotate exchanges the provider's key. The key before is not published any more.
func (p *Provider) Rotate() {
	p.t.Helper()
	private, err := rsa.GenerateKey(rand.Reader, 2048)
	require.NoError(p.t, err)
	p.mu.Lock()
	defer p.mu.Unlock()
	p.key = key{id: rand.Text(), private: private}
}

// Token gets a token for the caller from the provider.
func (p *Provider) Token(caller string, groups ...string) string {
	p.t.Helper()
	p.SetGroups(caller, groups...)
	req, err := http.NewRequestWithContext(p.t.Context(), http.MethodPost, p.URL+"/oauth/token", strings.NewReader(url.Values{"grant_type": {"client_credentials"}, "scope": {"openid"}}.Encode()))
	require.NoError(p.t, err)
	req.Header.Set("Content-Type", "application/x-www-form-urlencoded")
	req.SetBasicAuth(url.QueryEscape(caller), secret)
	resp, err := http.DefaultClient.Do(req)
	require.NoError(p.t, err)
	defer resp.Body.Close()
	var out struct {
		Token string `json:"access_token"`
	}
	require.NoError(p.t, json.NewDecoder(resp.Body).Decode(&out))
	require.Equal(p.t, http.StatusOK, resp.StatusCode)
	require.Equal(p.t, 2, strings.Count(out.Token, "."), "the provider makes JWTs")
	return out.Token
}

// Key returns the id of the provider's key, and the private key.
func (p *Provider) Key() (string, *rsa.PrivateKey) {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.key.id, p.key.private
}

// Sign returns a token with these claims, which the provider would not make, signed with its key.
func (p *Provider) Sign(claims map[string]any) string {
	p.t.Helper()
	id, private := p.Key()
	return Sign(p.t, jose.RS256, private, id, "at+jwt", claims)
}

// Sign returns a token.
func Sign(t *testing.T, algorithm jose.SignatureAlgorithm, key any, id, typ string, claims map[string]any) string {
	t.Helper()
	signer, err := jose.NewSigner(jose.SigningKey{Algorithm: algorithm, Key: jose.JSONWebKey{Key: key, KeyID: id}}, (&jose.SignerOptions{}).WithType(jose.ContentType(typ)))
	require.NoError(t, err)
	token, err := jwt.Signed(signer).Claims(claims).Serialize()
	require.NoError(t, err)
	return token
}

// SigningKey implements op.Storage.
func (p *Provider) SigningKey(context.Context) (op.SigningKey, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.key, nil
}

// KeySet implements op.Storage.
func (p *Provider) KeySet(context.Context) ([]op.Key, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	return []op.Key{publicKey{p.key}}, nil
}

// SignatureAlgorithms implements op.Storage.
func (p *Provider) SignatureAlgorithms(context.Context) ([]jose.SignatureAlgorithm, error) {
	return []jose.SignatureAlgorithm{jose.RS256}, nil
}

// GetPrivateClaimsFromScopes implements op.Storage.
func (p *Provider) GetPrivateClaimsFromScopes(_ context.Context, user, _ string, _ []string) (map[string]any, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	return map[string]any{"groups": p.groups[user]}, nil
}

// ClientCredentials implements op.ClientCredentialsStorage.
func (p *Provider) ClientCredentials(_ context.Context, id, _ string) (op.Client, error) {
	return client{storage.NativeClient(id)}, nil
}

// ClientCredentialsTokenRequest implements op.ClientCredentialsStorage.
func (p *Provider) ClientCredentialsTokenRequest(_ context.Context, id string, scopes []string) (op.TokenRequest, error) {
	return &oidc.JWTTokenRequest{Subject: id, Audience: []string{Audience}, Scopes: scopes}, nil
}

// client gets tokens for itself.
type client struct{ *storage.Client }

func (client) AccessTokenType() op.AccessTokenType { return op.AccessTokenTypeJWT }

func (client) GrantTypes() []oidc.GrantType {
	return []oidc.GrantType{oidc.GrantTypeClientCredentials}
}

type key struct {
	id      string
	private *rsa.PrivateKey
}

func (k key) ID() string                                  { return k.id }
func (k key) SignatureAlgorithm() jose.SignatureAlgorithm { return jose.RS256 }
func (k key) Key() any                                    { return k.private }

type publicKey struct{ key }

func (k publicKey) Algorithm() jose.SignatureAlgorithm { return jose.RS256 }
func (k publicKey) Use() string                        { return "sig" }
func (k publicKey) Key() any                           { return &k.private.PublicKey }
