package kafka

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"time"

	"golang.org/x/oauth2"
	"golang.org/x/oauth2/clientcredentials"

	"github.com/notyet/notyet/internal/loop"
)

// TokenEndpoint is where an OAuth 2 server gives tokens for client credentials (RFC 6749, 4.4).
type TokenEndpoint struct {
	// URL is the endpoint. Required.
	URL string
	// Scopes are asked for. Default none.
	Scopes []string
	// Credentials are the client's id and secret, asked with each request. Required.
	Credentials func() (id, secret string)
}

const (
	// tokenTimeout limits the wait for a token, and spareTimeout where the token before is still
	// valid. The library waits for a mechanism without a limit, and nothing else goes over the
	// connection meanwhile.
	tokenTimeout, spareTimeout = 10 * time.Second, 2 * time.Second
	// After a failure the endpoint rests for tokenPause, and for sparePause where the token before
	// is still valid: each connection of each client asks.
	tokenPause, sparePause = time.Second, 10 * time.Second
)

// NewTokens returns a source of tokens for connections. A token is asked for at a connection's
// need, and again once three quarters of its life are over. If that fails, the token before is used
// until its end.
func NewTokens(e TokenEndpoint) func(context.Context) (string, error) { return makeTokens(e).get }

func makeTokens(e TokenEndpoint) *tokens {
	transport := http.DefaultTransport.(*http.Transport).Clone()
	transport.DisableKeepAlives = true // minutes lie between two requests
	return &tokens{
		turn: make(chan struct{}, 1), credentials: e.Credentials, config: clientcredentials.Config{TokenURL: e.URL, Scopes: e.Scopes},
		// A redirect would take the secret elsewhere.
		client: &http.Client{Transport: transport, CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }},
	}
}

// tokens keeps one token. The holder of the turn reads and writes all fields.
type tokens struct {
	turn        chan struct{}
	credentials func() (id, secret string)
	config      clientcredentials.Config
	client      *http.Client

	token      string
	renew, end time.Time // of the token
	rest       time.Time // until then the endpoint is left alone, after failed
	failed     error
}

func (t *tokens) get(ctx context.Context) (string, error) {
	ctx, cancel := context.WithTimeout(ctx, tokenTimeout)
	defer cancel()
	select {
	case t.turn <- struct{}{}:
		defer func() { <-t.turn }()
	case <-ctx.Done():
		return "", fmt.Errorf("waiting for a token: %w", ctx.Err())
	}
	now := time.Now()
	valid := func() bool { return t.token != "" && time.Now().Before(t.end) }
	if t.token != "" && now.Before(t.renew) {
		return t.token, nil
	}
	if !now.Before(t.rest) {
		timeout, pause := tokenTimeout, tokenPause
		if valid() {
			timeout, pause = spareTimeout, sparePause
		}
		if t.failed = t.ask(ctx, timeout); t.failed == nil {
			return t.token, nil
		}
		t.rest = time.Now().Add(pause)
	}
	if valid() {
		return t.token, nil
	}
	_ = loop.Rest(ctx, failedDialPause) // for the same reason as a dial that fails
	return "", t.failed
}

// ask gets a token from the endpoint. The errors contain nothing of the answer but the code: the
// rest could repeat the secret.
func (t *tokens) ask(ctx context.Context, timeout time.Duration) error {
	ctx, cancel := context.WithTimeout(context.WithValue(ctx, oauth2.HTTPClient, t.client), timeout)
	defer cancel()
	t.config.ClientID, t.config.ClientSecret = t.credentials()
	now := time.Now()
	token, err := t.config.Token(ctx)
	var answer *oauth2.RetrieveError
	var unreachable *url.Error
	switch {
	case errors.As(err, &answer):
		return fmt.Errorf("asking %s for a token: status %d %.100q (see kafka.sasl.user and kafka.sasl.password)", t.config.TokenURL, answer.Response.StatusCode, answer.ErrorCode)
	case errors.As(err, &unreachable):
		return fmt.Errorf("asking %s for a token: %w", t.config.TokenURL, unreachable.Err)
	case err != nil:
		return fmt.Errorf("asking %s for a token: the answer has none", t.config.TokenURL)
	}
	t.token, t.renew, t.end = token.AccessToken, now, now // without an end it is used once
	if life := token.Expiry.Sub(now); !token.Expiry.IsZero() {
		t.renew, t.end = now.Add(life*3/4), token.Expiry
	}
	return nil
}
