package access

import (
	"encoding/json"
	"net"
	"net/http"
	"net/netip"
	"slices"
	"strings"

	"go.uber.org/zap"
)

// Config of a Guard. The zero value admits loopback connections only.
type Config struct {
	// Tokens is a YAML file, see Entry. Default none: everybody who connects to a loopback address
	// may do everything.
	Tokens string
	// Hosts are names that the Host header may have in addition to loopback ones, if there are no
	// tokens. Default none.
	Hosts []string
}

// Guard admits or refuses requests.
type Guard struct {
	hosts  []string
	tokens *Tokens // nil: loopback only
}

// New returns a Guard and reads the tokens.
func New(cfg Config, log *zap.Logger) (*Guard, error) {
	g := &Guard{}
	for _, h := range cfg.Hosts {
		g.hosts = append(g.hosts, strings.ToLower(h))
	}
	if cfg.Tokens == "" {
		return g, nil
	}
	var err error
	g.tokens, err = OpenTokens(cfg.Tokens, log)
	return g, err
}

// ByToken reports whether every request needs a token.
func (g *Guard) ByToken() bool { return g.tokens != nil }

// Caller returns the caller with this token.
func (g *Guard) Caller(token string) (Caller, bool) {
	if g.tokens == nil {
		return Caller{}, false
	}
	return g.tokens.Caller(token)
}

// Handler serves next to admitted callers, with the Caller in the request's context.
func (g *Guard) Handler(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		caller, status, problem := g.admit(r)
		if status != 0 {
			if status == http.StatusUnauthorized {
				w.Header().Set("WWW-Authenticate", `Bearer realm="notyet"`)
			}
			refuse(w, status, problem)
			return
		}
		next.ServeHTTP(w, r.WithContext(With(r.Context(), caller)))
	})
}

func (g *Guard) admit(r *http.Request) (c Caller, status int, problem string) {
	if g.tokens != nil {
		return g.byToken(r)
	}
	if !toLoopback(r) {
		return c, http.StatusForbidden, "without tokens this is served on loopback addresses only: set http.tokens (NOTYET_HTTP_TOKENS) to a file of tokens that `notyet token new` makes"
	}
	if !g.hosted(r.Host) {
		return c, http.StatusForbidden, "the Host header names neither a loopback host nor one of http.hosts: ask 127.0.0.1 or localhost, or add the name to http.hosts (NOTYET_HTTP_HOSTS)"
	}
	return Caller{Name: "local", Role: Admin}, 0, ""
}

func (g *Guard) byToken(r *http.Request) (c Caller, status int, problem string) {
	given := r.Header.Values("Authorization")
	if len(given) == 0 {
		return c, http.StatusUnauthorized, "no token: send the header Authorization: Bearer TOKEN"
	}
	scheme, token, _ := strings.Cut(given[0], " ")
	if len(given) > 1 || !strings.EqualFold(scheme, "Bearer") {
		return c, http.StatusUnauthorized, "send one header Authorization: Bearer TOKEN"
	}
	c, ok := g.tokens.Caller(strings.TrimSpace(token))
	if !ok {
		return c, http.StatusUnauthorized, "the token is none of those in http.tokens: make one with `notyet token new`"
	}
	return c, 0, ""
}

// toLoopback reports whether the connection came to a loopback address, which only this machine
// reaches.
func toLoopback(r *http.Request) bool {
	local, ok := r.Context().Value(http.LocalAddrContextKey).(net.Addr)
	if !ok {
		return false
	}
	at, err := netip.ParseAddrPort(local.String())
	return err == nil && at.Addr().Unmap().IsLoopback()
}

func (g *Guard) hosted(host string) bool {
	host = strings.ToLower(host)
	name := host
	if h, _, err := net.SplitHostPort(host); err == nil {
		name = h
	}
	name = strings.TrimSuffix(strings.Trim(name, "[]"), ".")
	if addr, err := netip.ParseAddr(name); err == nil && addr.Unmap().IsLoopback() {
		return true
	}
	return name == "localhost" || slices.Contains(g.hosts, name) || slices.Contains(g.hosts, host)
}

// refuse writes a problem document (RFC 9457).
func refuse(w http.ResponseWriter, status int, detail string) {
	w.Header().Set("Content-Type", "application/problem+json")
	w.Header().Set("Cache-Control", "no-store")
	w.WriteHeader(status)
	_ = json.NewEncoder(w).Encode(struct {
		Title  string `json:"title"`
		Status int    `json:"status"`
		Detail string `json:"detail"`
	}{http.StatusText(status), status, detail})
}

// CrossOrigin prevents pages of other sites, opened in an operator's browser, from changing
// anything.
func CrossOrigin(next http.Handler) http.Handler {
	p := http.NewCrossOriginProtection()
	p.SetDenyHandler(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		refuse(w, http.StatusForbidden, "a page of another site may not change anything here")
	}))
	return p.Handler(next)
}
