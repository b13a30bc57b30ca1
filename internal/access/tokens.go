package access

import (
	"context"
	"crypto/rand"
	"crypto/sha256"
	"crypto/subtle"
	"encoding/hex"
	"errors"
	"fmt"
	"net/http"
	"path"
	"regexp"
	"slices"
	"strings"
	"time"

	"go.uber.org/zap"
	"golang.org/x/time/rate"

	"github.com/notyet/notyet/internal/reload"
)

// Entry is one token in the file, without the token itself, or a group of those in http.jwt.
//
// Topics and Role are required, and written first and last. So a file cut short by a full disk
// gives nobody more than a whole one.
type Entry struct {
	Topics []string `json:"topics" yaml:"topics,flow"` // Everything: all
	// Expires is when the token ends: RFC 3339, or a date for its beginning in UTC. Absent: never.
	Expires string `json:"expires,omitempty" yaml:"expires,omitempty"`
	Name    string `json:"name"              yaml:"name,omitempty"`
	SHA256  string `json:"sha256"            yaml:"sha256,omitempty"` // of the token, in hexadecimal
	Group   string `json:"group,omitempty"   yaml:"group,omitempty"`  // instead of name and sha256
	// Tenant names the sharers of the token's limits. Absent: the tokens for the same topics.
	Tenant string `json:"tenant,omitempty" yaml:"tenant,omitempty"`
	// Intake is the only intake topic for the token's requests. Absent: any.
	Intake string `json:"intake,omitempty" yaml:"intake,omitempty"`
	// RequestsPerSecond bounds a token's, or a whole group's, requests at each service. Absent:
	// none.
	RequestsPerSecond *int   `json:"requests-per-second,omitempty" yaml:"requests-per-second,omitempty"`
	Role              string `json:"role"                          yaml:"role"`
}

// entries are the checked entries of a file.
type entries []entry

type entry struct {
	group  string            // "": a token's
	sum    [sha256.Size]byte // of the token
	caller Caller            // of a group without a name
}

// name is unique in a file: tokens' names have no blanks.
func (e entry) name() string {
	if e.group != "" {
		return "group " + e.group
	}
	return e.caller.Name
}

func (e entry) same(o entry) bool { return e.name() == o.name() }

const maxTokensFile = 1 << 20 // bytes

// tokensGrace is for how long the previous tokens stay in force when the file cannot be used: a
// file in the middle of an edit must lock nobody out, and a revoked token must not live on behind a
// mistake.
const tokensGrace = time.Minute

// Reasons to refuse a token.
var (
	errWrongToken = &refusal{"wrong_token", http.StatusUnauthorized, "the token is none of those in http.tokens: make one with `notyet token new`"}
	errExpired    = &refusal{"expired", http.StatusUnauthorized, "the token has expired: make another with `notyet token new`"}
	errUnusable   = &refusal{"unusable", http.StatusUnauthorized, "no token is accepted, because the file in http.tokens cannot be used: the service's log says why"}
)

// Tokens are the tokens of a file, read again on a change, and those of an issuer's groups.
type Tokens struct {
	entries *reload.Value[entries]
	issuer  *issuer // nil: none
}

// OpenTokens reads the file. If a later reading fails, the failure is logged, and the previous
// tokens stay in force for tokensGrace. Then none is.
func OpenTokens(cfg Config, log *zap.Logger) (*Tokens, error) {
	t := &Tokens{}
	if cfg.JWT.Issuer != "" {
		t.issuer = newIssuer(cfg.JWT, log)
	}
	var err error
	var last entries
	t.entries, err = reload.New(func() (entries, error) {
		now, aside, err := readTokens(cfg)
		if err != nil {
			return nil, err
		}
		if len(aside) > 0 {
			log.Warn("entries of the tokens file are set aside, because this service cannot use them: one with group needs http.jwt.issuer, one with intake a topic of intake.topics", zap.Strings("entries", aside))
		}
		if gained := last.gained(now); len(gained) > 0 && last != nil {
			log.Warn("the tokens file has changed: these may do more than before", zap.Strings("entries", gained))
		}
		now.keepPace(last)
		last = now
		return now, nil
	}, func(err error) {
		log.Error("the tokens file has changed and cannot be used; unless it is repaired, no token is accepted from a minute on", zap.Error(err))
	}, cfg.Tokens)
	if err != nil {
		return nil, err
	}
	return t, nil
}

// Caller returns the token's caller, or a refusal. Every wrong token takes the same time.
func (t *Tokens) Caller(ctx context.Context, token string) (Caller, error) {
	all, unusable := t.entries.Age()
	if unusable >= tokensGrace {
		return Caller{}, errUnusable
	}
	sum := sha256.Sum256([]byte(token))
	var found *entry
	for i := range all {
		if subtle.ConstantTimeCompare(sum[:], all[i].sum[:]) == 1 && all[i].group == "" {
			found = &all[i]
		}
	}
	switch {
	case found == nil && t.issuer == nil:
		return Caller{}, errWrongToken
	case found == nil && strings.Count(token, ".") != 2:
		return Caller{}, errNoJWT
	case found == nil:
		return t.issuer.caller(ctx, token, all)
	case found.caller.Ended(time.Now()):
		return Caller{}, errExpired
	}
	return found.caller, nil
}

// granted returns the rights of the groups: the highest role among them, for the topics of every
// group with this role. The first such group in the file sets the tenant and the pace.
func (all entries) granted(groups []string) (c Caller, ok bool) {
	for _, e := range all {
		if e.group == "" || !slices.Contains(groups, e.group) || e.caller.Role < c.Role {
			continue
		}
		if e.caller.Role > c.Role {
			c, ok = e.caller, true
			continue
		}
		c.Topics, c.ways = slices.Concat(c.Topics, e.caller.Topics), slices.Concat(c.ways, e.caller.ways)
	}
	return c, ok
}

// readTokens reads the file. aside are entries that this service cannot use: one file is for all
// services, which get an issuer or an intake one after the other.
func readTokens(cfg Config) (out entries, aside []string, err error) {
	text, err := reload.ReadFile(cfg.Tokens, maxTokensFile)
	if err != nil {
		return nil, nil, fmt.Errorf("http.tokens: %w", err)
	}
	all, err := parseTokens(text)
	for _, e := range all {
		if in := e.caller.ways[0].intake; e.group != "" && cfg.JWT.Issuer == "" || in != "" && !slices.Contains(cfg.Intakes, in) {
			aside = append(aside, e.name())
			continue
		}
		out = append(out, e)
	}
	if err == nil && len(out) == 0 {
		err = errors.New("this service can use none of its entries: one with group needs http.jwt.issuer, one with intake a topic of intake.topics")
	}
	if err != nil { // it repeats what is in the wrong place, and that may be a token
		err = fmt.Errorf("http.tokens: %s: %s", cfg.Tokens, tokenText.ReplaceAllString(err.Error(), tokenPrefix+"(hidden)"))
	}
	return out, aside, err
}

const tokenPrefix = "nyt_"

var tokenText = regexp.MustCompile(tokenPrefix + `\w*`)

func parseTokens(text []byte) (out entries, err error) {
	var list []Entry
	var fields []map[string]any
	if err := reload.DecodeYAML(text, &list); err != nil {
		return nil, fmt.Errorf("want a YAML list of {topics, expires, name, sha256, tenant, intake, requests-per-second, role}, or with group instead of expires, name and sha256: %w", err)
	}
	if err := reload.DecodeYAML(text, &fields); err != nil {
		return nil, err
	}
	if len(list) == 0 {
		return nil, errors.New("there is no token in it: add an entry that `notyet token new` prints")
	}
	for i, e := range list {
		checked, err := e.check()
		for name, value := range fields[i] {
			if err == nil && (value == nil || value == "") {
				err = fmt.Errorf("%s: has no value: write one, or remove the line", name)
			}
		}
		switch {
		case err != nil:
		case slices.ContainsFunc(out, func(o entry) bool { return o.same(checked) || e.Group == "" && o.group == "" && o.sum == checked.sum }):
			err = errors.New("another entry has the same name, sha256 or group: give each its own")
		}
		if err != nil {
			return nil, fmt.Errorf("entry %d (%q): %w", i+1, e.Name+e.Group, err)
		}
		out = append(out, checked)
	}
	return out, nil
}

// gained names the entries of now with more rights than before: another secret, a higher role,
// other topics, another intake, a faster pace, a later end.
func (all entries) gained(now entries) (names []string) {
	for _, is := range now {
		i := slices.IndexFunc(all, func(was entry) bool { return was.same(is) && was.sum == is.sum })
		if i < 0 || is.caller.beyond(all[i].caller) {
			names = append(names, is.name())
		}
	}
	return names
}

// beyond reports whether the caller has a right more than before.
func (c Caller) beyond(was Caller) bool {
	wider := func(p string) bool { return !was.AllTopics() && !slices.Contains(was.Topics, p) }
	other := func(w way) bool { return was.ways[0].intake != "" && w.intake != was.ways[0].intake }
	return c.Role > was.Role || slices.ContainsFunc(c.Topics, wider) || slices.ContainsFunc(c.ways, other) || c.pace.Limit() > was.pace.Limit() ||
		!was.Until.IsZero() && (c.Until.IsZero() || c.Until.After(was.Until))
}

// keepPace lets requests before a change of the file count afterwards.
func (all entries) keepPace(before entries) {
	for i := range all {
		if k := slices.IndexFunc(before, all[i].same); k >= 0 {
			pace := before[k].caller.pace
			pace.SetLimit(all[i].caller.pace.Limit())
			pace.SetBurst(all[i].caller.pace.Burst())
			all[i].caller.pace = pace
		}
	}
}

func (e Entry) check() (out entry, err error) {
	c := Caller{Name: e.Name}
	if e.Group != "" {
		if e.Name+e.SHA256+e.Expires != "" {
			return out, errors.New("an entry with group has no name, sha256 and expires: the issuer names callers and ends their tokens")
		}
		err = e.rights(&c)
		return entry{group: e.Group, caller: c}, err
	}
	if err := CheckName(e.Name); err != nil {
		return out, err
	}
	sum, err := hex.DecodeString(e.SHA256)
	if err != nil || len(sum) != sha256.Size {
		return out, errors.New("sha256: write the SHA-256 of the token as 64 hexadecimal digits")
	}
	if c.Until, err = ParseExpires(e.Expires); err == nil {
		err = e.rights(&c)
	}
	return entry{sum: [sha256.Size]byte(sum), caller: c}, err
}

const maxPace = 1_000_000

func (e Entry) rights(c *Caller) (err error) {
	c.Topics, c.ways, c.pace = e.Topics, []way{{e.Topics, e.Intake}}, rate.NewLimiter(rate.Inf, 0)
	if c.Role, err = ParseRole(e.Role); err != nil {
		return err
	}
	if err := CheckTopics(e.Topics); err != nil {
		return err
	}
	if n := e.RequestsPerSecond; n != nil {
		if *n < 1 || *n > maxPace {
			return fmt.Errorf("requests-per-second: %d is out of range: write 1 to %d, or remove the line for no bound", *n, maxPace)
		}
		c.pace = rate.NewLimiter(rate.Limit(*n), *n)
	}
	if c.Tenant = e.Tenant; e.Tenant == "" {
		c.Tenant = "topics " + strings.Join(slices.Sorted(slices.Values(e.Topics)), " ")
		return nil
	}
	if c.administers() {
		return errors.New("tenant: administrators of all topics are a tenant of their own: remove the line")
	}
	return checkText("tenant", e.Tenant)
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

// CheckName refuses names ambiguous in a log.
func CheckName(name string) error {
	if strings.HasPrefix(name, jwtPrefix) {
		return errors.New("name: names that begin with " + jwtPrefix + " are callers of the issuer in http.jwt: write another")
	}
	return checkText("name", name)
}

func checkText(field, text string) error {
	switch {
	case text == "" || len(text) > 64:
		return errors.New(field + ": write 1 to 64 characters")
	case strings.ContainsFunc(text, func(c rune) bool { return c <= ' ' || c > '~' }):
		return errors.New(field + ": write ASCII letters, digits and punctuation, without blanks")
	}
	return nil
}

// CheckTopics refuses patterns without a match, and an empty list, which must not mean every topic.
func CheckTopics(patterns []string) error {
	if len(patterns) == 0 {
		return errors.New(`topics: is missing, or names none: write topics: ["*"] for all topics, or patterns such as ["orders", "orders.*"]`)
	}
	if len(patterns) > 1 && slices.Contains(patterns, all) {
		return errors.New("topics: * means all topics and stands beside other patterns: write it alone, or remove it")
	}
	for _, p := range patterns {
		if _, err := path.Match(p, ""); err != nil || p == "" {
			return fmt.Errorf("topics: %q is not a pattern: write one such as orders or orders.*", p)
		}
	}
	return nil
}

// NewToken returns a token of 256 random bits, and the token's entry.
func NewToken(name string, role Role, topics []string) (token string, e Entry) {
	token = tokenPrefix + rand.Text() + rand.Text()
	sum := sha256.Sum256([]byte(token))
	return token, Entry{Name: name, SHA256: hex.EncodeToString(sum[:]), Role: role.String(), Topics: topics}
}
