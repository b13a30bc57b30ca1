package console

import (
	"context"
	"errors"
	"net/http"
	"time"

	"go.uber.org/zap"

	"github.com/notyet/notyet/internal/access"
)

const startPath = "/sign-in/start"

// Bounds of signing in at the issuer.
const (
	attemptLife = 10 * time.Minute
	// maxEnding is how many sign-ins may ask the issuer at a time, which anybody can make us do. Others wait for
	// their turn.
	maxEnding  = 16
	endingWait = 5 * time.Second
)

// attempt is a sign-in that has begun in a browser. Its cookie, without which no answer of the issuer counts,
// shows that it ends in the same browser.
type attempt struct {
	access.Attempt
	Next  string    `json:"next"`
	Began time.Time `json:"began"`
}

// start sends the browser to the issuer.
func (s *Sessions) start(w http.ResponseWriter, r *http.Request) {
	next := local(r.FormValue("next"))
	// Our own page leads here. A page of another site may not begin what replaces a session.
	if site := r.Header.Get("Sec-Fetch-Site"); s.guard.SignsInAt() == "" || site != "" && site != "same-origin" && site != "none" {
		http.Redirect(w, r, withNext("/sign-in", next), http.StatusSeeOther)
		return
	}
	to, begun, err := s.guard.BeginSignIn(r)
	if err != nil {
		s.failed(w, next, err)
		return
	}
	sealed, err := s.sealer.seal(r.Context(), attemptCookie, attempt{begun, next, time.Now()})
	if errors.Is(err, errCookieTooLarge) {
		sealed, err = s.sealer.seal(r.Context(), attemptCookie, attempt{begun, "/", time.Now()})
	}
	if err != nil {
		s.cannot(w, err)
		return
	}
	// The browser comes back from another site, and sends a stricter cookie to none of its links.
	s.setCookie(w, r, attemptCookie, sealed, attemptLife, http.SameSiteLaxMode)
	w.Header().Set("Cache-Control", "no-store")
	http.Redirect(w, r, to, http.StatusSeeOther)
}

// callback ends what start began, with the issuer's answer.
func (s *Sessions) callback(w http.ResponseWriter, r *http.Request) {
	if s.guard.SignsInAt() == "" {
		http.Redirect(w, r, "/sign-in", http.StatusSeeOther)
		return
	}
	var a attempt
	if sealed, ok := s.cookie(r, attemptCookie); ok {
		ok, err := s.sealer.open(r.Context(), attemptCookie, sealed, &a)
		if err != nil {
			s.cannot(w, err)
			return
		}
		if !ok || time.Since(a.Began) > attemptLife {
			a = attempt{}
		}
	}
	s.setCookie(w, r, attemptCookie, "", 0, http.SameSiteLaxMode)
	turn, cancel := context.WithTimeout(r.Context(), endingWait)
	defer cancel()
	if err := s.ending.Acquire(turn, 1); err != nil {
		w.Header().Set("Retry-After", "1")
		s.show(w, http.StatusServiceUnavailable, signInForm{Next: local(a.Next), Wrong: "Many sign in at this moment: try again in a second."})
		return
	}
	defer s.ending.Release(1)
	identity, err := s.guard.EndSignIn(r, a.Attempt)
	if err == nil {
		err = s.begin(w, r, identity.Name, session{Identity: &identity})
	}
	if err != nil {
		s.failed(w, local(a.Next), err)
		return
	}
	s.cfg.Log.Info("an operator has signed in to the console", zap.String("caller", identity.Name))
	// A redirect would still be a step from the other site, and the browser would not send the session's cookie.
	s.page(w, http.StatusOK, view{page: "signedin", title: "You are signed in", data: local(a.Next)})
}

// failed shows why nobody is signed in.
func (s *Sessions) failed(w http.ResponseWriter, next string, err error) {
	status := access.StatusOf(err)
	switch {
	case errors.Is(err, errCookieTooLarge):
		s.show(w, http.StatusUnprocessableEntity, signInForm{Next: next, Wrong: "You are not signed in: too many of your groups have a role in http.tokens, and there is no room for them in a cookie."})
	case status == 0:
		s.cannot(w, err)
	default:
		s.show(w, status, signInForm{Next: next, Wrong: "You are not signed in: " + err.Error() + "."})
	}
}
