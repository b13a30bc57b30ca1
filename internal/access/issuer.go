package access

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"

	"github.com/go-jose/go-jose/v4"
	"github.com/go-jose/go-jose/v4/jwt"
	"go.uber.org/zap"
)

// JWT names the issuer of accepted JSON Web Tokens. The zero value accepts none.
type JWT struct {
	// Issuer is the URL of an OpenID provider, exactly as in the provider's documents. Default
	// none.
	Issuer string
	// Audience is the audience required in a token. Default none: no token, but operators may sign
	// in.
	Audience string
	// GroupsClaim is the claim with the caller's groups. If no claim has the name, dots lead into
	// objects: realm_access.roles.
	GroupsClaim string
	// NameClaim is the claim with the caller's name.
	NameClaim string
	// KeysMaxAge is how old keys may get while the issuer does not answer. Default 1 h.
	KeysMaxAge time.Duration
	// TLS gives each connection to the issuer a configuration. Default the system's authorities.
	TLS func() *tls.Config
}

// Bounds of JSON Web Tokens.
const (
	maxJWT       = 16 << 10
	maxJWTHeader = 2 << 10 // in base64; it names a key and an algorithm
	// maxJWTName leaves room for jwtPrefix in the names of the audit log, of 255 bytes.
	maxJWTName = 200
	// jwtSkew is how far the issuer's clock may be from ours.
	jwtSkew = 30 * time.Second
	// jwtPrefix tells a caller of the issuer from a token of the file with the same name.
	jwtPrefix = "jwt:"
)

// algorithms have keys that an issuer can publish. With any other algorithm, tokens could be made
// from a public key, or from nothing at all.
var algorithms = []jose.SignatureAlgorithm{
	jose.RS256, jose.RS384, jose.RS512, jose.PS256, jose.PS384, jose.PS512, jose.ES256, jose.ES384, jose.ES512, jose.EdDSA,
}

// Reasons to refuse a JSON Web Token. None repeats anything of the token.
var (
	errNoJWT = &refusal{"wrong_token", http.StatusUnauthorized,
		"the token is none of those in http.tokens, and no signed JWT: get one from the issuer in http.jwt.issuer, or make one with `notyet token new`"}
	errNoAudience   = &refusal{"wrong_token", http.StatusUnauthorized, "the token is none of those in http.tokens, and a JWT is not accepted here: http.jwt.audience is not set"}
	errLargeJWT     = &refusal{"malformed", http.StatusUnauthorized, fmt.Sprintf("the JWT is larger than %d bytes: let the issuer put less into it", maxJWT)}
	errLargeHeader  = &refusal{"malformed", http.StatusUnauthorized, fmt.Sprintf("the header of the JWT is larger than %d bytes: let the issuer put less into it", maxJWTHeader)}
	errMalformedJWT = &refusal{"malformed", http.StatusUnauthorized, "the JWT cannot be read"}
	errKindOfJWT    = &refusal{"malformed", http.StatusUnauthorized, "the JWT is no access token: its header typ is neither JWT nor at+jwt"}
	errAlgorithm    = &refusal{"algorithm", http.StatusUnauthorized, "the JWT is signed with an algorithm that is not accepted: use RS, PS, ES (256, 384, 512) or EdDSA"}
	errIssuer       = &refusal{"issuer", http.StatusUnauthorized, "the JWT is from another issuer than http.jwt.issuer says"}
	errAudience     = &refusal{"audience", http.StatusUnauthorized, "the JWT is not for the audience in http.jwt.audience"}
	errNoExpiry     = &refusal{"malformed", http.StatusUnauthorized, "the JWT never ends: let the issuer set exp"}
	errSignature    = &refusal{"signature", http.StatusUnauthorized, "the signature of the JWT is wrong"}
	errUnknownKey   = &refusal{"unknown_key", http.StatusUnauthorized, "the JWT is signed with a key that its issuer does not publish: get a new one; a key that was published in these seconds is known soon"}
	errIssuerAway   = &refusal{"issuer_away", http.StatusServiceUnavailable, "the key of the JWT is not known, and the issuer's keys cannot be read at present: try again; the service's log says why"}
	errJWTName      = &refusal{"malformed", http.StatusUnauthorized, fmt.Sprintf("the claim in http.jwt.name-claim is not a text of 1 to %d printable bytes", maxJWTName)}
	errNoGroups     = &refusal{"no_role", http.StatusForbidden, "the JWT has no groups in the claim that http.jwt.groups-claim names"}
	errNoRole       = &refusal{"no_role", http.StatusForbidden, "none of the groups in the JWT has a role: add an entry with group and role to the file in http.tokens"}
)

type issuer struct {
	cfg  JWT
	keys *issuerKeys
	now  func() time.Time
}

func newIssuer(cfg JWT, log *zap.Logger) *issuer {
	i := &issuer{cfg: cfg, now: time.Now}
	i.keys = newIssuerKeys(cfg, func() time.Time { return i.now() }, log)
	return i
}

// caller returns the token's caller, with the rights of the caller's groups.
func (i *issuer) caller(ctx context.Context, token string, all entries) (Caller, error) {
	if i.cfg.Audience == "" {
		return Caller{}, errNoAudience
	}
	claims, until, err := i.verify(ctx, token, i.cfg.Audience)
	if err != nil {
		return Caller{}, err
	}
	c, err := i.named(claims, all)
	c.Until = until
	return c, err
}

// verify returns the claims of a token for the audience, and the token's end.
//
// Before the signature is known as right, verify reads as little as possible: anybody's claims can
// take milliseconds. With a known key, claims are read after the signature. With an unknown key, a
// few are read first, so that a token refused in any case makes nobody ask the issuer for keys.
func (i *issuer) verify(ctx context.Context, token, audience string) (claims map[string]any, until time.Time, err error) {
	if len(token) > maxJWT {
		return nil, until, errLargeJWT
	}
	if strings.IndexByte(token, '.') > maxJWTHeader {
		return nil, until, errLargeHeader
	}
	parsed, err := jwt.ParseSigned(token, algorithms)
	var algorithm *jose.ErrUnexpectedSignatureAlgorithm
	switch {
	case errors.As(err, &algorithm):
		return nil, until, errAlgorithm
	case err != nil || len(parsed.Headers) != 1:
		return nil, until, errMalformedJWT
	}
	header := parsed.Headers[0]
	if !isAccessToken(header) {
		return nil, until, errKindOfJWT
	}
	var usual jwt.Claims
	if !i.keys.has(header.KeyID, header.Algorithm) {
		if err := parsed.UnsafeClaimsWithoutVerification(&usual); err != nil {
			return nil, until, errMalformedJWT
		}
		if err := i.judge(usual, audience); err != nil {
			return nil, until, err
		}
	}
	key, err := i.keys.find(ctx, header.KeyID, header.Algorithm)
	if err != nil {
		return nil, until, err
	}
	if err := parsed.Claims(key); err != nil {
		return nil, until, errSignature
	}
	if err := parsed.UnsafeClaimsWithoutVerification(&usual, &claims); err != nil {
		return nil, until, errMalformedJWT
	}
	if err := i.judge(usual, audience); err != nil {
		return nil, until, err
	}
	return claims, usual.Expiry.Time().Add(jwtSkew), nil
}

// named returns the caller named by claims, with the rights of the groups.
func (i *issuer) named(claims map[string]any, all entries) (Caller, error) {
	name, ok := claim(claims, i.cfg.NameClaim).(string)
	if !ok || !validJWTName(name) {
		return Caller{}, errJWTName
	}
	groups := i.groups(claims)
	if len(groups) == 0 {
		return Caller{}, errNoGroups
	}
	c, ok := all.granted(groups)
	if !ok {
		return Caller{}, errNoRole
	}
	c.Name = jwtPrefix + name
	return c, nil
}

// isAccessToken refuses tokens for other purposes, such as a sign-out. Many have no kind, or JWT.
func isAccessToken(h jose.Header) bool {
	typ, _ := h.ExtraHeaders[jose.HeaderType].(string)
	switch strings.TrimPrefix(strings.ToLower(typ), "application/") {
	case "", "jwt", "at+jwt":
		return true
	}
	return false
}

func (i *issuer) judge(c jwt.Claims, audience string) error {
	now := i.now()
	clock := " by the clock of this service, which says " + now.UTC().Format(time.RFC3339)
	err := c.ValidateWithLeeway(jwt.Expected{Issuer: i.cfg.Issuer, AnyAudience: jwt.Audience{audience}, Time: now}, jwtSkew)
	switch {
	case errors.Is(err, jwt.ErrInvalidIssuer):
		return errIssuer
	case errors.Is(err, jwt.ErrInvalidAudience):
		return errAudience
	case c.Expiry == nil:
		return errNoExpiry
	case errors.Is(err, jwt.ErrExpired):
		return &refusal{"expired", http.StatusUnauthorized, "the JWT has expired" + clock + ": get a new one"}
	case err != nil: // nbf or iat lies ahead
		return &refusal{"not_yet_valid", http.StatusUnauthorized, "the JWT is not valid yet" + clock}
	}
	return nil
}

// claim returns a claim by name, or along the dots of the name.
func claim(claims map[string]any, name string) any {
	if v, ok := claims[name]; ok {
		return v
	}
	first, rest, _ := strings.Cut(name, ".")
	inner, _ := claims[first].(map[string]any)
	if inner == nil {
		return nil
	}
	return claim(inner, rest)
}

// groups returns the groups in a list or in one text; OAuth's scopes have blanks in between.
func (i *issuer) groups(claims map[string]any) (out []string) {
	switch v := claim(claims, i.cfg.GroupsClaim).(type) {
	case string:
		if i.cfg.GroupsClaim == "scope" || i.cfg.GroupsClaim == "scp" {
			return strings.Fields(v)
		}
		return []string{v}
	case []any:
		for _, e := range v {
			if s, ok := e.(string); ok {
				out = append(out, s)
			}
		}
	}
	return out
}

func validJWTName(name string) bool {
	return name != "" && len(name) <= maxJWTName && utf8.ValidString(name) && !strings.ContainsFunc(name, func(r rune) bool { return !unicode.IsPrint(r) })
}
