package access

import (
	"context"
	"crypto/rand"
	"crypto/subtle"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"time"

	"golang.org/x/oauth2"
)

// SignIn is how operators sign in to the console at the issuer of JWT: by the authorization code
// flow of OpenID Connect, with PKCE. The zero value lets nobody in.
type SignIn struct {
	// ClientID is our name at the issuer. Default none.
	ClientID string
	// Secret returns our secret at the issuer, anew at each use.
	Secret func() string
	// Scopes are asked for besides openid.
	Scopes []string
	// PublicURL is the console's address for browsers, without a path.
	PublicURL string
}

// CallbackPath is where the issuer sends the browser back to, below PublicURL.
const CallbackPath = "/sign-in/callback"

const exchangeTimeout = 10 * time.Second

// Reasons for a failed sign-in at the issuer. None repeats a secret.
var (
	errNotBegun     = &refusal{"state", http.StatusBadRequest, "this sign-in was not begun in this browser, or has waited for more than 10 minutes: begin again"}
	errOtherIssuer  = &refusal{"issuer", http.StatusBadRequest, "the answer is from another issuer than the one at which the sign-in was begun"}
	errNotOurs      = &refusal{"audience", http.StatusUnauthorized, "the ID token is not for our client: look at http.sign-in.client-id"}
	errNonce        = &refusal{"nonce", http.StatusUnauthorized, "the ID token belongs to another sign-in"}
	errNoIDToken    = &refusal{"provider", http.StatusBadGateway, "the issuer has given no ID token: let it allow the scope openid to our client"}
	errNoEndpoints  = &refusal{"provider", http.StatusBadGateway, "the issuer's discovery document names no https addresses for signing in (authorization_endpoint, token_endpoint)"}
	errNotReachable = &refusal{"issuer_away", http.StatusServiceUnavailable, "the issuer in http.jwt.issuer cannot be reached at present: try again; the service's log says why"}
	errSignInEnded  = &refusal{"expired", http.StatusUnauthorized, "the sign-in has ended"}
)

// Attempt is a begun sign-in. The browser keeps, but can neither read nor change the attempt.
type Attempt struct {
	Issuer   string `json:"issuer"`
	State    string `json:"state"`
	Nonce    string `json:"nonce"`
	Verifier string `json:"verifier"` // of PKCE
}

// Identity is a person named by the issuer.
type Identity struct {
	Issuer string   `json:"issuer"`
	Name   string   `json:"name"`
	Groups []string `json:"groups"` // those that had a role when he signed in
}

// SignsInAt returns the issuer's host for sign-ins of operators. "": none.
func (g *Guard) SignsInAt() string {
	if g.tokens == nil || g.tokens.issuer == nil || g.signIn.ClientID == "" {
		return ""
	}
	u, err := url.Parse(g.tokens.issuer.cfg.Issuer)
	if err != nil {
		return ""
	}
	return u.Host
}

// ClientSecret returns our secret at the issuer. "": there is none.
func (g *Guard) ClientSecret() string {
	if g.signIn.Secret == nil {
		return ""
	}
	return g.signIn.Secret()
}

// BeginSignIn returns the issuer's page for an operator. A failure is counted and logged.
func (g *Guard) BeginSignIn(r *http.Request) (to string, a Attempt, err error) {
	if g.SignsInAt() == "" {
		return "", a, errNotBegun
	}
	i := g.tokens.issuer
	cfg, _, err := g.oauth(r.Context())
	if err != nil {
		g.refused.note(r, refusalOf(err).why, atConsole)
		return "", a, err
	}
	a = Attempt{Issuer: i.cfg.Issuer, State: rand.Text() + rand.Text(), Nonce: rand.Text() + rand.Text(), Verifier: oauth2.GenerateVerifier()}
	return cfg.AuthCodeURL(a.State, oauth2.S256ChallengeOption(a.Verifier), oauth2.SetAuthURLParam("nonce", a.Nonce)), a, nil
}

// EndSignIn returns the person in the issuer's answer r. A failure is counted and logged.
func (g *Guard) EndSignIn(r *http.Request, a Attempt) (Identity, error) {
	out, err := g.endSignIn(r.Context(), r.URL.Query(), a)
	if err != nil {
		g.refused.note(r, refusalOf(err).why, atConsole)
	}
	return out, err
}

func (g *Guard) endSignIn(ctx context.Context, answer url.Values, a Attempt) (Identity, error) {
	if g.SignsInAt() == "" || a.State == "" || subtle.ConstantTimeCompare([]byte(a.State), []byte(answer.Get("state"))) != 1 {
		return Identity{}, errNotBegun
	}
	cfg, found, err := g.oauth(ctx)
	if err != nil {
		return Identity{}, err
	}
	i := g.tokens.issuer
	// RFC 9207: otherwise another issuer's answer to our attempt would take the code there.
	if from := answer.Get("iss"); a.Issuer != i.cfg.Issuer || from != "" && from != a.Issuer || from == "" && found.NamesItself {
		return Identity{}, errOtherIssuer
	}
	if code := answer.Get("error"); code != "" {
		return Identity{}, fromProvider(code)
	}
	ctx, cancel := context.WithTimeout(context.WithValue(ctx, oauth2.HTTPClient, i.keys.client()), exchangeTimeout)
	defer cancel()
	token, err := cfg.Exchange(ctx, answer.Get("code"), oauth2.VerifierOption(a.Verifier))
	var no *oauth2.RetrieveError
	switch {
	case errors.As(err, &no) && no.ErrorCode != "":
		return Identity{}, fromProvider(no.ErrorCode)
	case errors.As(err, &no):
		return Identity{}, fromProvider(fmt.Sprintf("status %d", no.Response.StatusCode))
	case err != nil:
		g.refused.unanswered(cfg.Endpoint.TokenURL, err)
		return Identity{}, errNotReachable
	}
	text, _ := token.Extra("id_token").(string)
	if text == "" {
		return Identity{}, errNoIDToken
	}
	return i.identity(ctx, text, g.signIn.ClientID, a.Nonce, g.tokens.entries.Get())
}

// fromProvider is a refusal by the issuer, with a code of RFC 6749 or any other text.
func fromProvider(code string) error {
	code = strings.Map(func(r rune) rune {
		if r < ' ' || r > '~' {
			return -1
		}
		return r
	}, code)
	fix := ""
	if code == "invalid_client" || code == "unauthorized_client" {
		fix = ": look at http.sign-in.client-id and http.sign-in.client-secret"
	}
	return &refusal{"provider", http.StatusUnauthorized, fmt.Sprintf("the issuer has answered %q", code[:min(len(code), 60)]) + fix}
}

// oauth returns our client at the issuer, and the issuer's discovery document.
func (g *Guard) oauth(ctx context.Context) (oauth2.Config, discovery, error) {
	i := g.tokens.issuer
	found, err := i.keys.discovered(ctx)
	if err != nil {
		return oauth2.Config{}, found, err
	}
	if !i.keys.trusted(found.Authorization) || !i.keys.trusted(found.Token) {
		return oauth2.Config{}, found, errNoEndpoints
	}
	style := oauth2.AuthStyleInHeader // the default of OpenID Connect
	if len(found.AuthMethods) > 0 && !slices.Contains(found.AuthMethods, "client_secret_basic") {
		style = oauth2.AuthStyleInParams
	}
	return oauth2.Config{
		ClientID: g.signIn.ClientID, ClientSecret: g.ClientSecret(), RedirectURL: g.signIn.PublicURL + CallbackPath, Scopes: append([]string{"openid"}, g.signIn.Scopes...),
		Endpoint: oauth2.Endpoint{AuthURL: found.Authorization, TokenURL: found.Token, AuthStyle: style},
	}, found, nil
}

// Known returns the present rights of a person named by the issuer.
func (g *Guard) Known(id Identity) (Caller, error) {
	if g.SignsInAt() == "" || id.Issuer != g.tokens.issuer.cfg.Issuer {
		return Caller{}, errSignInEnded
	}
	all, unusable := g.tokens.entries.Age()
	if unusable >= tokensGrace {
		return Caller{}, errUnusable
	}
	c, ok := all.granted(id.Groups)
	if !ok {
		return Caller{}, errNoRole
	}
	c.Name = id.Name
	return c, nil
}

// identity returns the person in an ID token from the issuer, for our client and this sign-in.
func (i *issuer) identity(ctx context.Context, token, client, nonce string, all entries) (Identity, error) {
	claims, _, err := i.verify(ctx, token, client)
	switch {
	case errors.Is(err, errAudience):
		return Identity{}, errNotOurs
	case err != nil:
		return Identity{}, err
	}
	if got, _ := claims["nonce"].(string); subtle.ConstantTimeCompare([]byte(got), []byte(nonce)) != 1 {
		return Identity{}, errNonce
	}
	if party, there := claims["azp"]; there && party != client {
		return Identity{}, errNotOurs
	}
	c, err := i.named(claims, all)
	if err != nil {
		return Identity{}, err
	}
	id := Identity{Issuer: i.cfg.Issuer, Name: c.Name}
	groups := i.groups(claims)
	for _, e := range all {
		if e.group != "" && slices.Contains(groups, e.group) {
			id.Groups = append(id.Groups, e.group)
		}
	}
	return id, nil
}

// StatusOf returns the HTTP status of a refusal; 0 for another error.
func StatusOf(err error) int {
	if no, ok := errors.AsType[*refusal](err); ok {
		return no.status
	}
	return 0
}
