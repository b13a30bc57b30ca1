package access

import (
	"bytes"
	"crypto/rand"
	"crypto/sha256"
	"crypto/subtle"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"os"
	"path"
	"regexp"
	"time"

	"go.uber.org/zap"
	"go.yaml.in/yaml/v3"

	"github.com/notyet/notyet/internal/reload"
)

// Entry is one token in the file, without the token itself.
type Entry struct {
	Name   string   `json:"name"             yaml:"name"`
	SHA256 string   `json:"sha256"           yaml:"sha256"` // of the token, in hexadecimal
	Role   string   `json:"role"             yaml:"role"`
	Topics []string `json:"topics,omitempty" yaml:"topics,omitempty"` // absent: all
	// Expires is when the token ends: RFC 3339, or a date, which means its beginning in UTC. Absent:
	// never.
	Expires string `json:"expires,omitempty" yaml:"expires,omitempty"`
}

// known is a checked Entry.
type known struct {
	sum     [sha256.Size]byte
	caller  Caller
	expires time.Time // zero: never
}

// maxTokensFile limits what is read if the path is wrong, for example a device.
const maxTokensFile = 1 << 20

// tokensGrace is for how long the tokens before stay in force when the file cannot be used: an editor
// that is writing it must lock nobody out, and a revoked token must not live on behind a mistake.
const tokensGrace = time.Minute

// Reasons for which a token is refused.
var (
	errWrongToken = errors.New("the token is none of those in http.tokens: make one with `notyet token new`")
	errExpired    = errors.New("the token has expired: make another with `notyet token new`")
	errUnusable   = errors.New("no token is accepted, because the file in http.tokens cannot be used: the service's log says why")
)

// Tokens are the tokens of a file, which is read again when it changes.
type Tokens struct{ entries *reload.Value[[]known] }

// OpenTokens reads the file. If reading it again fails later, it logs that, and the previous tokens
// stay in force for tokensGrace. Then none is.
func OpenTokens(file string, log *zap.Logger) (*Tokens, error) {
	entries, err := reload.New(func() ([]known, error) { return readTokens(file) }, func(err error) {
		log.Error("the tokens file has changed and cannot be used; unless it is repaired, no token is accepted from a minute on", zap.Error(err))
	}, file)
	if err != nil {
		return nil, err
	}
	return &Tokens{entries}, nil
}

// Caller returns the caller with this token, or why it is refused. Every wrong token takes the same
// time.
func (t *Tokens) Caller(token string) (Caller, error) {
	entries, unusable := t.entries.Age()
	if unusable >= tokensGrace {
		return Caller{}, errUnusable
	}
	sum := sha256.Sum256([]byte(token))
	var found *known
	for i := range entries {
		if subtle.ConstantTimeCompare(sum[:], entries[i].sum[:]) == 1 {
			found = &entries[i]
		}
	}
	switch {
	case found == nil:
		return Caller{}, errWrongToken
	case !found.expires.IsZero() && !time.Now().Before(found.expires):
		return Caller{}, errExpired
	}
	return found.caller, nil
}

// Unusable returns for how long the file has not been usable. 0: it is.
func (t *Tokens) Unusable() time.Duration {
	_, d := t.entries.Age()
	return d
}

func readTokens(file string) ([]known, error) {
	f, err := os.Open(file)
	if err != nil {
		return nil, fmt.Errorf("http.tokens: %w", err)
	}
	defer f.Close()
	text, err := io.ReadAll(io.LimitReader(f, maxTokensFile+1))
	if err != nil {
		return nil, fmt.Errorf("http.tokens: %w", err)
	}
	if len(text) > maxTokensFile {
		return nil, fmt.Errorf("http.tokens: %s is larger than %d bytes", file, maxTokensFile)
	}
	out, err := parseTokens(text)
	if err != nil { // it repeats what is in the wrong place, and that may be a token
		return nil, fmt.Errorf("http.tokens: %s: %s", file, tokenText.ReplaceAllString(err.Error(), tokenPrefix+"(hidden)"))
	}
	return out, nil
}

const tokenPrefix = "nyt_"

var tokenText = regexp.MustCompile(tokenPrefix + `\w*`)

func parseTokens(text []byte) ([]known, error) {
	var entries []Entry
	decoder := yaml.NewDecoder(bytes.NewReader(text))
	decoder.KnownFields(true)
	if err := decoder.Decode(&entries); err != nil && !errors.Is(err, io.EOF) {
		return nil, fmt.Errorf("want a YAML list of {name, sha256, role, topics, expires}: %w", err)
	}
	if len(entries) == 0 {
		return nil, errors.New("there is no token in it: add an entry that `notyet token new` prints")
	}
	names, sums := map[string]bool{}, map[[sha256.Size]byte]bool{}
	out := make([]known, 0, len(entries))
	for i, e := range entries {
		k, err := e.check()
		if err == nil && (names[e.Name] || sums[k.sum]) {
			err = errors.New("another entry has the same name or sha256: give each its own")
		}
		if err != nil {
			return nil, fmt.Errorf("entry %d (%q): %w", i+1, e.Name, err)
		}
		names[e.Name], sums[k.sum] = true, true
		out = append(out, k)
	}
	return out, nil
}

func (e Entry) check() (k known, err error) {
	if err := CheckName(e.Name); err != nil {
		return k, err
	}
	sum, err := hex.DecodeString(e.SHA256)
	if err != nil || len(sum) != sha256.Size {
		return k, errors.New("sha256: write the SHA-256 of the token as 64 hexadecimal digits")
	}
	role, err := ParseRole(e.Role)
	if err != nil {
		return k, err
	}
	if err := CheckTopics(e.Topics); err != nil {
		return k, err
	}
	expires, err := ParseExpires(e.Expires)
	if err != nil {
		return k, err
	}
	return known{[sha256.Size]byte(sum), Caller{Name: e.Name, Role: role, Topics: e.Topics}, expires}, nil
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
	for _, c := range name {
		if c <= ' ' || c > '~' {
			return errors.New("name: write ASCII letters, digits and punctuation, without blanks")
		}
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
