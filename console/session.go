package console

import (
	"context"
	"crypto/rand"
	"io/fs"
	"maps"
	"net/http"
	"net/url"
	"strings"
	"sync"
	"time"

	"golang.org/x/time/rate"

	"github.com/notyet/notyet/internal/access"
)

// Bounds of sessions.
const (
	sessionLife = 12 * time.Hour
	sessionIdle = time.Hour
	maxSessions = 1000
	maxOfCaller = 100 // so that who has one token cannot end the sessions of others
	cookieName  = "notyet_session"
	// refreshHeader is sent by the script that refreshes a page by itself.
	refreshHeader = "Notyet-Refresh"
)

// Sessions are the operators who signed in with a token. They are this process's own: a restart ends
// them.
type Sessions struct {
	guard   *access.Guard
	version string
	files   http.Handler
	wrong   *rate.Limiter // of sign-ins that failed

	mu   sync.Mutex
	open map[string]*session // by id
}

type session struct {
	token      string
	name       string // of its caller
	began, met time.Time
}

// NewSessions returns Sessions without any.
func NewSessions(guard *access.Guard, version string) *Sessions {
	files, err := fs.Sub(static, "static")
	if err != nil {
		panic(err) // the folder is embedded
	}
	return &Sessions{guard: guard, version: version, files: http.FileServerFS(files), wrong: rate.NewLimiter(2, 20), open: map[string]*session{}}
}

// Front serves what needs no caller: styles, script and the sign-in page. A page of the console goes
// on to next, which is the guard, with the token of the session. Everything else goes on as it is.
func (s *Sessions) Front(next http.Handler) http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("GET /console/", s.file)
	mux.HandleFunc("GET /sign-in", s.form)
	mux.HandleFunc("POST /sign-in", s.signIn)
	mux.HandleFunc("POST /sign-out", s.signOut)
	mux.HandleFunc("/", func(w http.ResponseWriter, r *http.Request) {
		if !s.guard.ByToken() || !isPage(r.URL.Path) || r.Header.Get("Authorization") != "" {
			next.ServeHTTP(w, r)
			return
		}
		token, ok := s.token(r)
		if !ok {
			s.refuse(w, r)
			return
		}
		r = r.Clone(context.WithValue(r.Context(), signedKey{}, true))
		r.Header.Set("Authorization", "Bearer "+token)
		next.ServeHTTP(w, r)
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

// refuse sends whoever has no session to the sign-in page, and from there back.
func (s *Sessions) refuse(w http.ResponseWriter, r *http.Request) {
	to := "/sign-in"
	if r.Method == http.MethodGet {
		to += "?" + url.Values{"next": {r.URL.RequestURI()}}.Encode()
	}
	http.Redirect(w, r, to, http.StatusSeeOther)
}

// token returns the token of the request's session. A token that is no longer valid ends the session.
func (s *Sessions) token(r *http.Request) (string, bool) {
	cookie, err := r.Cookie(cookieName)
	if err != nil {
		return "", false
	}
	s.mu.Lock()
	x := s.open[cookie.Value]
	s.mu.Unlock()
	if x == nil {
		return "", false
	}
	valid := s.guard.Valid(r.Context(), x.token) // which may ask the issuer of a JWT
	s.mu.Lock()
	defer s.mu.Unlock()
	if !valid || x.over(time.Now()) {
		delete(s.open, cookie.Value)
		return "", false
	}
	if r.Header.Get(refreshHeader) == "" { // a page that nobody looks at does not keep the session
		x.met = time.Now()
	}
	return x.token, true
}

func (x *session) over(now time.Time) bool {
	return now.Sub(x.began) > sessionLife || now.Sub(x.met) > sessionIdle
}

// begin makes a session and returns its id. The one that was not used for the longest time gives way:
// of the same caller, if that has many, otherwise of all.
func (s *Sessions) begin(token, name string) string {
	s.mu.Lock()
	defer s.mu.Unlock()
	now := time.Now()
	maps.DeleteFunc(s.open, func(_ string, x *session) bool { return x.over(now) })
	s.makeRoom(maxOfCaller, func(x *session) bool { return x.name == name })
	s.makeRoom(maxSessions, func(*session) bool { return true })
	id := rand.Text() + rand.Text() // 256 random bits
	s.open[id] = &session{token: token, name: name, began: now, met: now}
	return id
}

// makeRoom ends a session if there are as many as may be of those that count.
func (s *Sessions) makeRoom(most int, counts func(*session) bool) {
	n, oldest := 0, ""
	for id, x := range s.open {
		if !counts(x) {
			continue
		}
		if n++; oldest == "" || x.met.Before(s.open[oldest].met) {
			oldest = id
		}
	}
	if n >= most {
		delete(s.open, oldest)
	}
}

type signInForm struct {
	Next, Wrong string
	Needed      bool
}

func (s *Sessions) form(w http.ResponseWriter, r *http.Request) {
	if !s.guard.ByToken() {
		http.Redirect(w, r, "/", http.StatusSeeOther)
		return
	}
	s.show(w, http.StatusOK, signInForm{Next: local(r.FormValue("next"))})
}

func (s *Sessions) show(w http.ResponseWriter, status int, f signInForm) {
	v := view{page: "signin", title: "Sign in"}
	write(w, status, v, shown{Title: v.title, Page: v.page, Version: s.version, Now: time.Now(), Data: f})
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
	http.SetCookie(w, &http.Cookie{Name: cookieName, Value: s.begin(token, caller.Name), Path: "/", HttpOnly: true, Secure: secure(r), SameSite: http.SameSiteStrictMode, MaxAge: int(sessionLife.Seconds())})
	http.Redirect(w, r, next, http.StatusSeeOther)
}

func (s *Sessions) signOut(w http.ResponseWriter, r *http.Request) {
	if cookie, err := r.Cookie(cookieName); err == nil {
		s.mu.Lock()
		delete(s.open, cookie.Value)
		s.mu.Unlock()
	}
	http.SetCookie(w, &http.Cookie{Name: cookieName, Path: "/", HttpOnly: true, Secure: secure(r), SameSite: http.SameSiteStrictMode, MaxAge: -1})
	http.Redirect(w, r, "/sign-in", http.StatusSeeOther)
}

// secure reports whether the browser reached this site by HTTPS: here, or at a proxy that ends TLS. A
// browser sends Origin with every form, and no page can set it.
func secure(r *http.Request) bool {
	return r.TLS != nil || strings.HasPrefix(r.Header.Get("Origin"), "https://")
}

// local returns a path of this site, whatever was asked for.
func local(next string) string {
	u, err := url.Parse(next)
	if err != nil || u.IsAbs() || u.Host != "" || !strings.HasPrefix(next, "/") || strings.HasPrefix(next, "//") || strings.ContainsAny(next, "\\\r\n") {
		return "/"
	}
	return next
}
