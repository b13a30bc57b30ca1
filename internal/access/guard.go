package access

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"strconv"
	"strings"
	"time"

	"go.uber.org/zap"
)

// Config of a Guard. The zero value admits loopback connections only.
type Config struct {
	// Tokens is a YAML file, see Entry. Default none: every loopback connection may do everything.
	Tokens string
	// JWT names an issuer of further tokens. Tokens then has the roles of the issuer's groups.
	JWT JWT
	// SignIn says how operators sign in at the issuer of JWT.
	SignIn SignIn
	// Hosts are permitted Host headers besides loopback ones, if there are no tokens. Default none.
	Hosts []string
	// Intakes are the intake topics, for entries of Tokens. Default none.
	Intakes []string
}

// Guard admits or refuses requests. The zero value admits loopback connections only.
type Guard struct {
	hosts   []string
	tokens  *Tokens // nil: loopback only
	signIn  SignIn
	refused refusals
}

// New returns a Guard and reads the tokens.
func New(cfg Config, log *zap.Logger) (*Guard, error) {
	g := &Guard{refused: newRefusals(log), signIn: cfg.SignIn}
	for _, h := range cfg.Hosts {
		g.hosts = append(g.hosts, strings.ToLower(h))
	}
	if cfg.Tokens == "" {
		return g, nil
	}
	var err error
	g.tokens, err = OpenTokens(cfg, log)
	return g, err
}

// Run returns when ctx ends. Meanwhile the keys of an issuer of JWTs are kept young.
func (g *Guard) Run(ctx context.Context) {
	if g.tokens != nil && g.tokens.issuer != nil {
		g.tokens.issuer.keys.keep(ctx)
	}
	<-ctx.Done()
}

// ByToken reports whether every request needs a token.
func (g *Guard) ByToken() bool { return g.tokens != nil }

// Caller returns the caller with a token.
func (g *Guard) Caller(ctx context.Context, token string) (Caller, error) {
	if g.tokens == nil {
		return Caller{}, errWrongToken
	}
	return g.tokens.Caller(ctx, token)
}

// SignIn returns the caller for a typed token. A refused one is counted and logged, with an error.
func (g *Guard) SignIn(r *http.Request, token string) (Caller, error) {
	c, err := g.Caller(r.Context(), token)
	if err != nil {
		g.refused.note(r, refusalOf(err).why, atConsole)
	}
	return c, err
}

// Handler serves next to admitted callers. The request's context has the Caller, and ends with the
// caller's token. A request whose context already has a Caller is admitted.
func (g *Guard) Handler(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		caller, no := g.admit(r)
		if no != nil {
			g.refused.note(r, no.why, atAPI)
			if no.status == http.StatusUnauthorized {
				w.Header().Set("WWW-Authenticate", `Bearer realm="notyet"`)
			}
			Refuse(w, no.status, no.detail)
			return
		}
		if wait := caller.RetryAfter(); wait > 0 {
			g.refused.note(r, "too_many", atAPI)
			w.Header().Set("Retry-After", strconv.Itoa(int((wait+time.Second-1)/time.Second)))
			Refuse(w, http.StatusTooManyRequests, fmt.Sprintf("the entry of %q in http.tokens allows %v requests a second (requests-per-second): send fewer, or ask the operator to raise it", caller.Name, caller.pace.Limit()))
			return
		}
		ctx := With(r.Context(), caller)
		if !caller.Until.IsZero() {
			var cancel context.CancelFunc
			ctx, cancel = context.WithDeadline(ctx, caller.Until)
			defer cancel()
		}
		next.ServeHTTP(w, r.WithContext(ctx))
	})
}

// refusal is why a request is not admitted.
type refusal struct {
	why    string // label of the metric
	status int
	detail string
}

// Error is the detail.
func (r *refusal) Error() string { return r.detail }

func (g *Guard) admit(r *http.Request) (Caller, *refusal) {
	if c := From(r.Context()); c.Role > None {
		return c, nil
	}
	if g.tokens != nil {
		return g.byToken(r)
	}
	const fix = "set http.tokens (NOTYET_HTTP_TOKENS) to a file of tokens that `notyet token new` makes"
	forbidden := func(why, detail string) (Caller, *refusal) {
		return Caller{}, &refusal{why, http.StatusForbidden, detail}
	}
	if !toLoopback(r) {
		return forbidden("address", "without tokens this is served on loopback addresses only: "+fix)
	}
	if sign := g.proxied(r); sign != "" {
		return forbidden("forwarded", "the request came through a proxy ("+sign+"), and without tokens everybody whom it serves would be an administrator: "+fix+", or ask this address directly")
	}
	if !g.hosted(r.Host) {
		return forbidden("host", "the Host header names neither a loopback host nor one of http.hosts: ask 127.0.0.1 or localhost, or add the name to http.hosts (NOTYET_HTTP_HOSTS)")
	}
	return Caller{Name: "local", Role: Admin, Topics: Everything}, nil
}

func (g *Guard) byToken(r *http.Request) (Caller, *refusal) {
	unauthorized := func(why, detail string) (Caller, *refusal) {
		return Caller{}, &refusal{why, http.StatusUnauthorized, detail}
	}
	given := r.Header.Values("Authorization")
	if len(given) == 0 {
		return unauthorized("no_token", "no token: send the header Authorization: Bearer TOKEN")
	}
	scheme, token, _ := strings.Cut(given[0], " ")
	if len(given) > 1 || !strings.EqualFold(scheme, "Bearer") {
		return unauthorized("no_token", "send one header Authorization: Bearer TOKEN")
	}
	c, err := g.tokens.Caller(r.Context(), strings.TrimSpace(token))
	if err != nil {
		return Caller{}, refusalOf(err)
	}
	return c, nil
}

// forwarding are headers of proxies and content networks, besides X-Forwarded-….
var forwarding = map[string]bool{
	"Forwarded": true, "Via": true, "X-Real-Ip": true, "X-Client-Ip": true, "X-Original-Forwarded-For": true, "X-Original-Host": true,
	"X-Envoy-External-Address": true, "True-Client-Ip": true, "Cf-Connecting-Ip": true, "Fastly-Client-Ip": true,
}

// Refuse writes a problem document (RFC 9457).
func Refuse(w http.ResponseWriter, status int, detail string) {
	w.Header().Set("Content-Type", "application/problem+json")
	w.Header().Set("Cache-Control", "no-store")
	w.WriteHeader(status)
	_ = json.NewEncoder(w).Encode(struct {
		Title  string `json:"title"`
		Status int    `json:"status"`
		Detail string `json:"detail"`
	}{http.StatusText(status), status, detail})
}

// CrossOrigin keeps pages of other sites, in an operator's browser, from changing anything.
func CrossOrigin(next http.Handler) http.Handler {
	p := http.NewCrossOriginProtection()
	p.SetDenyHandler(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		Refuse(w, http.StatusForbidden, "a page of another site may not change anything here")
	}))
	return p.Handler(next)
}
