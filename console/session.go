package console

import (
	"context"
	"crypto/rand"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"io/fs"
	"net/http"
	"net/url"
	"strings"
	"time"

	"go.uber.org/zap"
	"golang.org/x/time/rate"

	"github.com/notyet/notyet/internal/access"
	"github.com/notyet/notyet/internal/share"
)

// Bounds of sessions.
const (
	sessionLife = 12 * time.Hour
	// issuerSession is the life of a session begun at the issuer. A group taken away by the issuer
	// counts for so long, for any end of the ID token.
	issuerSession = time.Hour
	sessionIdle   = time.Hour
	// renewAfter is how old the note of the last use may be. So most answers have no cookie.
	renewAfter = time.Minute
	// refreshHeader comes from the script at an automatic refresh.
	refreshHeader = "Notyet-Refresh"
)

// Config of Sessions.
type Config struct {
	Guard *access.Guard
	// Common returns the database, anew at each use.
	Common func() Common
	// PublicURL is the console's address for browsers, without a path. Default: not known.
	PublicURL string
	Version   string
	Log       *zap.Logger
}

// Sessions are the operators signed in, with a token or at the issuer. A session is a sealed
// cookie. The caller's rights are looked up with each request.
type Sessions struct {
	cfg    Config
	guard  *access.Guard
	files  http.Handler
	sealer sealer
	wrong  *rate.Limiter  // of sign-ins that failed
	away   rate.Sometimes // of lines about the key
	spent  spent

	beginning, ending *share.Turns  // of peers: to begin a sign-in, a second each, and to ask the issuer
	failedRest        time.Duration // for which a sign-in that fails keeps its place: guesses fail
}

type session struct {
	ID       string           `json:"id"`
	Token    string           `json:"token,omitempty"`
	Identity *access.Identity `json:"identity,omitempty"` // in place of Token: signed in at the issuer
	Began    time.Time        `json:"began"`
	Met      time.Time        `json:"met"` // when it was last used, at most renewAfter too early
}

// NewSessions returns Sessions.
func NewSessions(cfg Config) *Sessions {
	files, err := fs.Sub(static, "static")
	if err != nil {
		panic(err) // the folder is embedded
	}
	return &Sessions{
		cfg: cfg, guard: cfg.Guard, files: http.FileServerFS(files), wrong: rate.NewLimiter(2, 20), away: rate.Sometimes{Interval: time.Second}, beginning: share.NewTurns(maxBegun, 0, peerBegun), ending: share.NewTurns(maxEnding, 0, peerEnding), failedRest: 2 * time.Second,
		sealer: sealer{common: cfg.Common, client: cfg.Guard.ClientSecret},
	}
}

// Front serves pages without a caller: styles, script and signing in. A page of the console goes on
// to next, the guard, with the caller of the session. Everything else goes on unchanged.
func (s *Sessions) Front(next http.Handler) http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("GET /console/", s.file)
	mux.HandleFunc("GET /sign-in", s.form)
	mux.HandleFunc("POST /sign-in", s.signIn)
	mux.HandleFunc("GET "+startPath, s.start)
	mux.HandleFunc("GET "+access.CallbackPath, s.callback)
	mux.HandleFunc("POST /sign-out", s.signOut)
	mux.HandleFunc("/", func(w http.ResponseWriter, r *http.Request) {
		if !s.guard.ByToken() || !isPage(r.URL.Path) || r.Header.Get("Authorization") != "" {
			next.ServeHTTP(w, r)
			return
		}
		x, caller, err := s.resume(r)
		switch {
		case err != nil:
			s.cannot(w, err)
			return
		case x == nil:
			s.refuse(w, r)
			return
		}
		// Automatic refreshes do not keep the session.
		if now := time.Now(); r.Header.Get(refreshHeader) == "" && now.Sub(x.Met) >= renewAfter {
			x.Met = now
			if err := s.give(w, r, x); err != nil {
				s.cannot(w, err)
				return
			}
		}
		next.ServeHTTP(w, r.WithContext(access.With(context.WithValue(r.Context(), signedKey{}, true), caller)))
	})
	return mux
}

type signedKey struct{}

func signed(ctx context.Context) bool { return ctx.Value(signedKey{}) != nil }

func (s *Sessions) file(w http.ResponseWriter, r *http.Request) {
	protect(w.Header())
	w.Header().Set("Cache-Control", "public, max-age=300")
	http.StripPrefix("/console/", s.files).ServeHTTP(w, r)
}

// refuse sends a browser without a session to the sign-in page, and from there back: to the same
// page, or to the one with the form.
func (s *Sessions) refuse(w http.ResponseWriter, r *http.Request) {
	q := url.Values{"next": {r.URL.RequestURI()}}
	if r.Method != http.MethodGet {
		q.Set("unchanged", "yes")
		from, err := url.Parse(r.Referer())
		if q.Set("next", "/"); err == nil && from.Path != "" {
			q.Set("next", local(from.RequestURI()))
		}
	}
	http.Redirect(w, r, "/sign-in?"+q.Encode(), http.StatusSeeOther)
}

func withNext(path, next string) string {
	if next == "" {
		return path
	}
	return path + "?" + url.Values{"next": {next}}.Encode()
}

// cannot answers where the key of the sessions cannot be read.
func (s *Sessions) cannot(w http.ResponseWriter, err error) {
	s.away.Do(func() {
		s.cfg.Log.Error("the key of the console's sessions cannot be read from the database", zap.Error(err))
	})
	w.Header().Set("Retry-After", "1")
	s.show(w, http.StatusServiceUnavailable, signInForm{Wrong: "The database is away: try again in a moment."})
}

// opened returns the request's living session.
func (s *Sessions) opened(r *http.Request) (*session, error) {
	sealed, ok := s.cookie(r, sessionCookie)
	if !ok {
		return nil, nil
	}
	var x session
	if ok, err := s.sealer.open(r.Context(), sessionCookie, sealed, &x); err != nil || !ok || !time.Now().Before(x.end()) || s.sealer.hasEnded(x.ID) {
		return nil, err
	}
	return &x, nil
}

// resume returns the request's session, and the caller's present rights. nil: nobody is signed in.
func (s *Sessions) resume(r *http.Request) (*session, access.Caller, error) {
	x, err := s.opened(r)
	if x == nil || err != nil {
		return nil, access.Caller{}, err
	}
	caller, err := s.caller(r.Context(), *x)
	if err != nil {
		return nil, access.Caller{}, nil
	}
	if end := x.last(); caller.Until.IsZero() || end.Before(caller.Until) {
		caller.Until = end
	}
	return x, caller, nil
}

func (s *Sessions) caller(ctx context.Context, x session) (access.Caller, error) {
	if x.Identity != nil {
		return s.guard.Known(*x.Identity)
	}
	return s.guard.Caller(ctx, x.Token)
}

func (x *session) life() time.Duration {
	if x.Identity != nil {
		return issuerSession
	}
	return sessionLife
}

// last is the session's latest end, in spite of any use.
func (x *session) last() time.Time { return x.Began.Add(x.life()) }

// end is when the session ends without another use.
func (x *session) end() time.Time {
	end, idle := x.last(), x.Met.Add(sessionIdle)
	if idle.Before(end) {
		return idle
	}
	return end
}

// begin gives the browser a new session. The id begins with the owner: see Common.EndSession.
func (s *Sessions) begin(w http.ResponseWriter, r *http.Request, caller string, x session) error {
	owner := sha256.Sum256([]byte(caller))
	x.ID, x.Began = hex.EncodeToString(owner[:8])+"."+rand.Text(), time.Now()
	x.Met = x.Began
	return s.give(w, r, &x)
}

func (s *Sessions) give(w http.ResponseWriter, r *http.Request, x *session) error {
	sealed, err := s.sealer.seal(r.Context(), sessionCookie, x)
	if err == nil {
		s.setCookie(w, r, sessionCookie, sealed, time.Until(x.last()), http.SameSiteStrictMode)
	}
	return err
}

type signInForm struct {
	Next, Wrong string
	Start       string // where the sign-in at the issuer begins; "": nowhere
	Issuer      string // its host
}

func (s *Sessions) form(w http.ResponseWriter, r *http.Request) {
	if !s.guard.ByToken() {
		http.Redirect(w, r, "/", http.StatusSeeOther)
		return
	}
	f := signInForm{Next: local(r.FormValue("next"))}
	if r.FormValue("unchanged") != "" {
		f.Wrong = "You were signed out, and nothing was changed. Sign in to go back to the form."
	}
	s.show(w, http.StatusOK, f)
}

func (s *Sessions) show(w http.ResponseWriter, status int, f signInForm) {
	if f.Issuer = s.guard.SignsInAt(); f.Issuer != "" {
		f.Start = withNext(startPath, f.Next)
	}
	s.page(w, status, view{page: "signin", title: "Sign in", data: f})
}

func (s *Sessions) page(w http.ResponseWriter, status int, v view) {
	write(w, status, v, shown{Title: v.title, Page: v.page, Version: s.cfg.Version, Now: time.Now(), Zone: "UTC", Data: v.data}, time.UTC)
}

func (s *Sessions) signIn(w http.ResponseWriter, r *http.Request) {
	r.Body = http.MaxBytesReader(w, r.Body, 32<<10)
	next := local(r.FormValue("next"))
	token := strings.TrimSpace(r.FormValue("token"))
	caller, err := s.guard.SignIn(r, token)
	if err != nil {
		if !s.wrong.Allow() {
			w.Header().Set("Retry-After", "1")
			s.show(w, http.StatusTooManyRequests, signInForm{Next: next, Wrong: "Too many wrong tokens: try again in a second."})
			return
		}
		s.show(w, http.StatusUnauthorized, signInForm{Next: next, Wrong: "You are not signed in: " + err.Error() + "."})
		return
	}
	switch err := s.begin(w, r, caller.Name, session{Token: token}); {
	case errors.Is(err, errCookieTooLarge):
		s.show(w, http.StatusUnprocessableEntity, signInForm{Next: next, Wrong: "You are not signed in: the token is too large for a cookie. Let the issuer put less into it, or sign in at the issuer (http.sign-in)."})
	case err != nil:
		s.cannot(w, err)
	default:
		http.Redirect(w, r, next, http.StatusSeeOther)
	}
}

// signOut ends the session at the service too: somebody may have a copy of the cookie.
func (s *Sessions) signOut(w http.ResponseWriter, r *http.Request) {
	x, err := s.opened(r)
	if x != nil && x.ID != "" { // a session of a program before this one has none
		err = s.sealer.end(r.Context(), x.ID, x.last())
	}
	s.setCookie(w, r, sessionCookie, "", 0, http.SameSiteStrictMode)
	if err != nil {
		s.away.Do(func() { s.cfg.Log.Error("a session of the console cannot be ended in the database", zap.Error(err)) })
		s.show(w, http.StatusServiceUnavailable, signInForm{Wrong: "This browser is signed out. The database could not note that, so a copy of its cookie is good until the session ends."})
		return
	}
	http.Redirect(w, r, "/sign-in", http.StatusSeeOther)
}

// secure reports whether the browser reached this site by HTTPS: here, or at a proxy that ends TLS.
// A browser sends Origin with every form, and no page can set it. A session's cookie with the
// prefix proves earlier HTTPS.
func (s *Sessions) secure(r *http.Request) bool {
	_, err := r.Cookie(hostPrefix + sessionCookie)
	return r.TLS != nil || err == nil || strings.HasPrefix(s.cfg.PublicURL, "https://") || strings.HasPrefix(r.Header.Get("Origin"), "https://")
}

// local returns a path of this site, for any input.
func local(next string) string {
	u, err := url.Parse(next)
	if err != nil || u.IsAbs() || u.Host != "" || !strings.HasPrefix(next, "/") || strings.HasPrefix(next, "//") || strings.ContainsAny(next, "\\\r\n") {
		return "/"
	}
	return next
}
