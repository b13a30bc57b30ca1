package access

import (
	"bytes"
	"context"
	"crypto/rand"
	"crypto/sha256"
	"crypto/subtle"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"net/http"
	"path"
	"regexp"
	"slices"
	"strings"
	"time"

	"go.uber.org/zap"
	"go.yaml.in/yaml/v3"

	"github.com/notyet/notyet/internal/reload"
)

// Entry is one token in the file, without the token itself, or a group of those in http.jwt.
type Entry struct {
	Name   string   `json:"name"             yaml:"name,omitempty"`
	SHA256 string   `json:"sha256"           yaml:"sha256,omitempty"` // of the token, in hexadecimal
	Group  string   `json:"group,omitempty"  yaml:"group,omitempty"`  // instead of name and sha256
	Role   string   `json:"role"             yaml:"role"`
	Topics []string `json:"topics,omitempty" yaml:"topics,omitempty"` // absent: all
	// Expires is when the token ends: RFC 3339, or a date, which means its beginning in UTC. Absent:
	// never.
	Expires string `json:"expires,omitempty" yaml:"expires,omitempty"`
}

// entries are the checked entries of a file.
type entries struct {
	tokens []known
	groups []grant
}

// known is the entry of a token.
type known struct {
	sum    [sha256.Size]byte
	caller Caller
}

// grant is the entry of a group.
type grant struct {
	group  string
	caller Caller // without a name
}

const maxTokensFile = 1 << 20 // bytes

// tokensGrace is for how long the tokens before stay in force when the file cannot be used: an editor
// that is writing it must lock nobody out, and a revoked token must not live on behind a mistake.
const tokensGrace = time.Minute

// Reasons for which a token is refused.
var (
	errWrongToken = &refusal{"wrong_token", http.StatusUnauthorized, "the token is none of those in http.tokens: make one with `notyet token new`"}
	errExpired    = &refusal{"expired", http.StatusUnauthorized, "the token has expired: make another with `notyet token new`"}
	errUnusable   = &refusal{"unusable", http.StatusUnauthorized, "no token is accepted, because the file in http.tokens cannot be used: the service's log says why"}
)

// Tokens are the tokens of a file, which is read again when it changes, and those of an issuer for whose
// groups the file has entries.
type Tokens struct {
	entries *reload.Value[entries]
	issuer  *issuer // nil: none
}

// OpenTokens reads the file. If reading it again fails later, it logs that, and the previous tokens
// stay in force for tokensGrace. Then none is.
func OpenTokens(file string, cfg JWT, log *zap.Logger) (*Tokens, error) {
	t := &Tokens{}
	if cfg.Issuer != "" {
		t.issuer = newIssuer(cfg, log)
	}
	var err error
	t.entries, err = reload.New(func() (entries, error) { return readTokens(file, t.issuer != nil) }, func(err error) {
		log.Error("the tokens file has changed and cannot be used; unless it is repaired, no token is accepted from a minute on", zap.Error(err))
	}, file)
	if err != nil {
		return nil, err
	}
	return t, nil
}

// Caller returns the caller with this token, or why it is refused. Every wrong token of the
// file takes the same time.
func (t *Tokens) Caller(ctx context.Context, token string) (Caller, error) {
	all, unusable := t.entries.Age()
	if unusable >= tokensGrace {
		return Caller{}, errUnusable
	}
	sum := sha256.Sum256([]byte(token))
	var found *known
	for i := range all.tokens {
		if subtle.ConstantTimeCompare(sum[:], all.tokens[i].sum[:]) == 1 {
			found = &all.tokens[i]
		}
	}
	switch {
	case found == nil && t.issuer == nil:
		return Caller{}, errWrongToken
	case found == nil && strings.Count(token, ".") != 2:
		return Caller{}, errNoJWT
	case found == nil:
		return t.issuer.caller(ctx, token, all.groups)
	case found.caller.Ended(time.Now()):
		return Caller{}, errExpired
	}
	return found.caller, nil
}

// granted returns what the groups may do: the highest role that one of them has, for the topics of those
// that have it.
func granted(grants []grant, groups []string) (c Caller, ok bool) {
	for _, g := range grants {
		if !slices.Contains(groups, g.group) || g.caller.Role < c.Role {
			continue
		}
		if g.caller.Role > c.Role {
			c, ok = g.caller, true
			continue
		}
		if c.Topics != nil && g.caller.Topics != nil {
			c.Topics = slices.Concat(c.Topics, g.caller.Topics)
		} else {
			c.Topics = nil // all
		}
	}
	return c, ok
}

// readTokens reads a file, which may have groups if there is an issuer.
func readTokens(file string, groups bool) (entries, error) {
	text, err := reload.ReadFile(file, maxTokensFile)
	if err != nil {
		return entries{}, fmt.Errorf("http.tokens: %w", err)
	}
	out, err := parseTokens(text)
	if err == nil && !groups && len(out.groups) > 0 {
		err = errors.New("it has entries with group, and http.jwt.issuer is not set")
	}
	if err != nil { // it repeats what is in the wrong place, and that may be a token
		return entries{}, fmt.Errorf("http.tokens: %s: %s", file, tokenText.ReplaceAllString(err.Error(), tokenPrefix+"(hidden)"))
	}
	return out, nil
}

const tokenPrefix = "nyt_"

var tokenText = regexp.MustCompile(tokenPrefix + `\w*`)

func parseTokens(text []byte) (out entries, err error) {
	var list []Entry
	decoder := yaml.NewDecoder(bytes.NewReader(text))
	decoder.KnownFields(true)
	if err := decoder.Decode(&list); err != nil && !errors.Is(err, io.EOF) {
		return out, fmt.Errorf("want a YAML list of {name, sha256, role, topics, expires} or {group, role, topics}: %w", err)
	}
	if len(list) == 0 {
		return out, errors.New("there is no token in it: add an entry that `notyet token new` prints")
	}
	for i, e := range list {
		if err := out.add(e); err != nil {
			return out, fmt.Errorf("entry %d (%q): %w", i+1, e.Name+e.Group, err)
		}
	}
	return out, nil
}

// add checks an entry and adds it.
func (all *entries) add(e Entry) error {
	if e.Group == "" {
		k, err := e.check()
		if err == nil && slices.ContainsFunc(all.tokens, func(o known) bool { return o.caller.Name == e.Name || o.sum == k.sum }) {
			err = errors.New("another entry has the same name or sha256: give each its own")
		}
		all.tokens = append(all.tokens, k)
		return err
	}
	if e.Name+e.SHA256+e.Expires != "" {
		return errors.New("an entry with group has no name, sha256 and expires: the issuer names callers and ends their tokens")
	}
	if slices.ContainsFunc(all.groups, func(o grant) bool { return o.group == e.Group }) {
		return errors.New("another entry has the same group: write one for each")
	}
	c, err := e.rights()
	all.groups = append(all.groups, grant{e.Group, c})
	return err
}

func (e Entry) check() (k known, err error) {
	if err := CheckName(e.Name); err != nil {
		return k, err
	}
	sum, err := hex.DecodeString(e.SHA256)
	if err != nil || len(sum) != sha256.Size {
		return k, errors.New("sha256: write the SHA-256 of the token as 64 hexadecimal digits")
	}
	c, err := e.rights()
	if err != nil {
		return k, err
	}
	c.Name = e.Name
	c.Until, err = ParseExpires(e.Expires)
	return known{[sha256.Size]byte(sum), c}, err
}

// rights returns role and topics.
func (e Entry) rights() (Caller, error) {
	role, err := ParseRole(e.Role)
	if err != nil {
		return Caller{}, err
	}
	return Caller{Role: role, Topics: e.Topics}, CheckTopics(e.Topics)
}

// ParseExpires parses when a token ends. An empty text means never.
func ParseExpires(text string) (time.Time, error) {
	if text == "" {
		return time.Time{}, nil
	}
	for _, layout := range []string{time.RFC3339, time.DateOnly} {
		if at, err := time.Parse(layout, text); err == nil {
			return at, nil
		}
	}
	return time.Time{}, fmt.Errorf("expires: %q is no time: write a date such as 2027-01-31, or RFC 3339 such as 2027-01-31T18:00:00Z", text)
}

// CheckName refuses names that would be ambiguous in a log.
func CheckName(name string) error {
	if name == "" || len(name) > 64 {
		return errors.New("name: write 1 to 64 characters")
	}
	if strings.ContainsFunc(name, func(c rune) bool { return c <= ' ' || c > '~' }) {
		return errors.New("name: write ASCII letters, digits and punctuation, without blanks")
	}
	if strings.HasPrefix(name, jwtPrefix) {
		return errors.New("name: names that begin with " + jwtPrefix + " are callers of the issuer in http.jwt: write another")
	}
	return nil
}

// CheckTopics refuses patterns that match nothing. nil means every topic; an empty list is a
// mistake.
func CheckTopics(patterns []string) error {
	if patterns != nil && len(patterns) == 0 {
		return errors.New("topics: the list is empty: name a pattern, or leave topics out for all")
	}
	for _, p := range patterns {
		if _, err := path.Match(p, ""); err != nil || p == "" {
			return fmt.Errorf("topics: %q is not a pattern: write one such as orders or orders.*", p)
		}
	}
	return nil
}

// NewToken returns a token of 256 random bits, and its entry.
func NewToken(name string, role Role, topics []string) (token string, e Entry) {
	token = tokenPrefix + rand.Text() + rand.Text()
	sum := sha256.Sum256([]byte(token))
	return token, Entry{Name: name, SHA256: hex.EncodeToString(sum[:]), Role: role.String(), Topics: topics}
}
