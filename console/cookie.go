package console

import (
	"context"
	"crypto/aes"
	"crypto/cipher"
	"crypto/hkdf"
	"crypto/sha256"
	"encoding/base64"
	"encoding/json"
	"errors"
	"maps"
	"net/http"
	"sync/atomic"
	"time"

	"golang.org/x/sync/singleflight"
)

// maxCookie bounds a sealed value. Browsers keep 4096 bytes of a cookie, with name and attributes.
const maxCookie = 3800

var errCookieTooLarge = errors.New("there is no room for it in a cookie")

// sealer makes cookies for all processes of the installation to open, and nobody else to make or
// read. So a session outlives a restart, and a load balancer may send a browser anywhere.
type sealer struct {
	common func() Common
	// client returns a part of the key that is not in the database: a reader of a database backup
	// can make no session of anybody known to the issuer.
	client func() string
	kept   atomic.Pointer[kept] // nil: nothing was read yet
	asking singleflight.Group   // for what is kept: anybody can have us ask
}

// Common are the common data of the installation's processes, in the database.
type Common interface {
	// Secret returns a secret by name.
	Secret(ctx context.Context, name string) ([16]byte, error)
	// EndSession notes the end of a session usable until then, Unix ms. The id begins with the
	// owner, up to a dot. One owner may end so many sessions that others still can end theirs.
	EndSession(ctx context.Context, id string, until int64) error
	// EndedSessions returns until when each such session could be used.
	EndedSessions(ctx context.Context) (map[string]time.Time, error)
}

// kept is the last reading of Common, with its time. A database that was set back may have another
// secret since, and operators may have ended sessions at other processes.
type kept struct {
	secret [16]byte
	ended  map[string]time.Time // sessions, and until when each could be used
	at     time.Time
}

const (
	// rereadAfter is for how long kept counts without a look at the database. While the database is
	// away, kept stays in force.
	rereadAfter  = time.Minute
	commonWithin = 5 * time.Second
)

// seal returns v for open with the same purpose.
func (s *sealer) seal(ctx context.Context, purpose string, v any) (string, error) {
	aead, err := s.aead(ctx)
	if err != nil {
		return "", err
	}
	text, err := json.Marshal(v)
	if err != nil {
		return "", err
	}
	sealed := base64.RawURLEncoding.EncodeToString(aead.Seal(nil, nil, text, []byte(purpose)))
	if len(sealed) > maxCookie {
		return "", errCookieTooLarge
	}
	return sealed, nil
}

// open reports whether the text was sealed for the purpose, and fills v.
func (s *sealer) open(ctx context.Context, purpose, text string, v any) (bool, error) {
	aead, err := s.aead(ctx)
	if err != nil {
		return false, err
	}
	sealed, err := base64.RawURLEncoding.DecodeString(text)
	if err == nil {
		sealed, err = aead.Open(nil, nil, sealed, []byte(purpose))
	}
	return err == nil && json.Unmarshal(sealed, v) == nil, nil
}

func (s *sealer) aead(ctx context.Context) (cipher.AEAD, error) {
	k, err := s.read(ctx)
	if err != nil {
		return nil, err
	}
	key, err := hkdf.Key(sha256.New, append(k.secret[:len(k.secret):len(k.secret)], s.client()...), nil, "notyet console", 32)
	if err != nil {
		return nil, err
	}
	block, err := aes.NewCipher(key)
	if err != nil {
		return nil, err
	}
	return cipher.NewGCMWithRandomNonce(block)
}

// read returns a reading of within rereadAfter.
func (s *sealer) read(ctx context.Context) (*kept, error) {
	known := s.kept.Load()
	if known != nil && time.Since(known.at) < rereadAfter {
		return known, nil
	}
	k, err, _ := s.asking.Do("", func() (any, error) { return s.reread(ctx, known) })
	if err != nil {
		return nil, err
	}
	return k.(*kept), nil
}

// reread looks at the database. After a failure, the known reading counts on.
func (s *sealer) reread(ctx context.Context, known *kept) (*kept, error) {
	ctx, cancel := bounded(ctx)
	defer cancel()
	secret, err := s.common().Secret(ctx, "sessions")
	var ended map[string]time.Time
	if err == nil {
		ended, err = s.common().EndedSessions(ctx)
	}
	if err != nil && known == nil {
		return nil, err
	}
	return s.keep(func(k *kept) {
		k.at = time.Now()
		if err == nil {
			k.secret = secret
			maps.Copy(k.ended, ended)
		}
	}), nil
}

// keep changes the kept reading. An ended session stays ended, even after a look at the database
// that began before the end.
func (s *sealer) keep(change func(*kept)) *kept {
	for {
		before, after := s.kept.Load(), &kept{ended: map[string]time.Time{}}
		if before != nil {
			after.secret, after.at = before.secret, before.at
			maps.Copy(after.ended, before.ended)
		}
		change(after)
		maps.DeleteFunc(after.ended, func(_ string, until time.Time) bool { return time.Since(until) > 0 })
		if s.kept.CompareAndSwap(before, after) {
			return after
		}
	}
}

// end ends a session at all processes: here at once, and elsewhere within rereadAfter.
func (s *sealer) end(ctx context.Context, id string, until time.Time) error {
	ctx, cancel := bounded(ctx)
	defer cancel()
	err := s.common().EndSession(ctx, id, until.UnixMilli())
	if err == nil {
		s.keep(func(k *kept) { k.ended[id] = until })
	}
	return err
}

func (s *sealer) hasEnded(id string) bool {
	k := s.kept.Load()
	return k != nil && !k.ended[id].IsZero()
}

// bounded is for calls to the database. The caller may leave meanwhile.
func bounded(ctx context.Context) (context.Context, context.CancelFunc) {
	return context.WithTimeout(context.WithoutCancel(ctx), commonWithin)
}

// Names of cookies. Over HTTPS with the prefix __Host-: no other host of the domain can set them.
const (
	sessionCookie = "notyet_session"
	attemptCookie = "notyet_sign_in"
	hostPrefix    = "__Host-"
)

func (s *Sessions) cookie(r *http.Request, name string) (value string, ok bool) {
	cookie, err := r.Cookie(hostPrefix + name)
	if err != nil && !s.secure(r) {
		cookie, err = r.Cookie(name)
	}
	if err != nil {
		return "", false
	}
	return cookie.Value, true
}

// setCookie gives the browser a cookie for a time. Zero removes the cookie.
func (s *Sessions) setCookie(w http.ResponseWriter, r *http.Request, name, value string, life time.Duration, site http.SameSite) {
	c := &http.Cookie{Name: name, Value: value, Path: "/", HttpOnly: true, Secure: s.secure(r), SameSite: site, MaxAge: int(life.Seconds())}
	if c.Secure {
		c.Name = hostPrefix + name
	}
	if life <= 0 {
		c.MaxAge = -1
	}
	http.SetCookie(w, c)
}
