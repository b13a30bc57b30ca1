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
	"net/http"
	"sync/atomic"
	"time"
)

// maxCookie is how long a sealed value may be. Browsers keep 4096 bytes of a cookie, with its name and attributes.
const maxCookie = 3800

var errCookieTooLarge = errors.New("there is no room for it in a cookie")

// sealer makes cookies that every process of the installation can open, and nobody else can make or read. So
// a session outlives a restart, and a load balancer may send a browser anywhere.
type sealer struct {
	// installation returns a secret that is kept in the database.
	installation func(ctx context.Context, name string) ([16]byte, error)
	// client returns what is part of the key too, and is not in the database: who reads a backup of it can make no
	// session of somebody whom the issuer knows.
	client func() string
	kept   atomic.Pointer[keptSecret] // nil: the secret was not read yet
}

// keptSecret is the secret of the installation, and when it was read. A database that was set back may have another one since.
type keptSecret struct {
	secret [16]byte
	at     time.Time
}

const (
	// rereadAfter is for how long the secret counts without a look at the database. While the database is away, the secret stays in force.
	rereadAfter  = time.Minute
	secretWithin = 5 * time.Second
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
	kept := s.kept.Load()
	if kept == nil || time.Since(kept.at) >= rereadAfter {
		bound, cancel := context.WithTimeout(context.WithoutCancel(ctx), secretWithin) // whoever asks may leave
		defer cancel()
		secret, err := s.installation(bound, "sessions")
		switch {
		case err != nil && kept == nil:
			return nil, err
		case err != nil:
			secret = kept.secret
		}
		kept = &keptSecret{secret, time.Now()}
		s.kept.Store(kept)
	}
	key, err := hkdf.Key(sha256.New, append(kept.secret[:len(kept.secret):len(kept.secret)], s.client()...), nil, "notyet console", 32)
	if err != nil {
		return nil, err
	}
	block, err := aes.NewCipher(key)
	if err != nil {
		return nil, err
	}
	return cipher.NewGCMWithRandomNonce(block)
}

// Names of cookies. Over HTTPS they have the prefix __Host-, so that no other host of the domain can set them.
const (
	sessionCookie = "notyet_session"
	attemptCookie = "notyet_sign_in"
	hostPrefix    = "__Host-"
)

// cookie returns the value of a cookie that the browser sent.
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

// setCookie gives the browser a cookie for a time. Zero takes it away.
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
