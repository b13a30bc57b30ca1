package console

import (
	"errors"
	"maps"
	"net/http"
	"net/netip"
	"slices"
	"sync"
	"time"

	"go.uber.org/zap"

	"github.com/notyet/notyet/internal/access"
	"github.com/notyet/notyet/internal/share"
)

const startPath = "/sign-in/start"

// Bounds of signing in at the issuer: anybody can make us ask there.
const (
	attemptLife = 10 * time.Minute
	// maxBegun is how many sign-ins may begin in a second, and peerBegun how many of one peer.
	maxBegun, peerBegun = 100, 5
	// maxEnding is how many sign-ins may ask the issuer at a time, and peerEnding how many of one
	// peer. Others wait for their turn.
	maxEnding, peerEnding = 16, 4
	// maxSpent is how many spent attempts are remembered. Older attempts are not accepted any more.
	maxSpent = 10_000
)

// attempt is a sign-in begun in a browser. Its cookie shows that the same browser ends the attempt.
// Without the cookie no answer of the issuer counts.
type attempt struct {
	access.Attempt
	Next  string    `json:"next"`
	Began time.Time `json:"began"`
}

// spent are the attempts with an answer. An attempt is good for one answer, so that nobody uses it
// to make us ask the issuer again and again.
type spent struct {
	mu    sync.Mutex
	began map[string]time.Time // by state
	since time.Time            // attempts that began before are spent, known or not
}

func (s *spent) first(a attempt) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if _, again := s.began[a.State]; again || a.Began.Before(s.since) {
		return false
	}
	if s.began == nil {
		s.began = map[string]time.Time{}
	}
	if s.began[a.State] = a.Began; len(s.began) > maxSpent {
		s.since = slices.SortedFunc(maps.Values(s.began), time.Time.Compare)[maxSpent/2]
		maps.DeleteFunc(s.began, func(_ string, began time.Time) bool { return began.Before(s.since) })
	}
	return true
}

// peer names the sender of a request. The holder of an IPv6 address has the whole network.
func peer(r *http.Request) string {
	at, err := netip.ParseAddrPort(r.RemoteAddr)
	if err != nil {
		return r.RemoteAddr
	}
	addr := at.Addr().Unmap()
	if addr.Is6() {
		network, _ := addr.WithZone("").Prefix(64)
		return network.String()
	}
	return addr.String()
}

// turn waits for the peer's turn, or reports that the wait was too long.
func (s *Sessions) turn(w http.ResponseWriter, r *http.Request, of *share.Turns, next string) (leave func(), ok bool) {
	leave, err := of.Take(r.Context(), share.Account{Tenant: peer(r)}, 1)
	if err != nil {
		w.Header().Set("Retry-After", "1")
		s.show(w, http.StatusServiceUnavailable, signInForm{Next: next, Wrong: "Many sign in at this moment: try again in a second."})
	}
	return leave, err == nil
}

func (s *Sessions) start(w http.ResponseWriter, r *http.Request) {
	next := local(r.FormValue("next"))
	// Our own page leads here. A page of another site may not begin a sign-in over a session.
	if site := r.Header.Get("Sec-Fetch-Site"); s.guard.SignsInAt() == "" || site != "" && site != "same-origin" && site != "none" {
		http.Redirect(w, r, withNext("/sign-in", next), http.StatusSeeOther)
		return
	}
	leave, ok := s.turn(w, r, s.beginning, next)
	if !ok {
		return
	}
	time.AfterFunc(time.Second, leave)
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
	// The browser comes back from another site, and would not send a stricter cookie.
	s.setCookie(w, r, attemptCookie, sealed, attemptLife, http.SameSiteLaxMode)
	w.Header().Set("Cache-Control", "no-store")
	http.Redirect(w, r, to, http.StatusSeeOther)
}

// callback ends the attempt of start, with the issuer's answer.
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
		if !ok || time.Since(a.Began) > attemptLife || !s.spent.first(a) {
			a = attempt{}
		}
	}
	s.setCookie(w, r, attemptCookie, "", 0, http.SameSiteLaxMode)
	if a.State != r.URL.Query().Get("state") {
		a = attempt{} // nobody is asked
	}
	leave := func() {}
	if a.State != "" {
		var ok bool
		if leave, ok = s.turn(w, r, s.ending, local(a.Next)); !ok {
			return
		}
	}
	identity, err := s.guard.EndSignIn(r, a.Attempt)
	if err == nil {
		err = s.begin(w, r, identity.Name, session{Identity: &identity})
	}
	if err != nil {
		time.AfterFunc(s.failedRest, leave)
		s.failed(w, local(a.Next), err)
		return
	}
	leave()
	s.cfg.Log.Info("an operator has signed in to the console", zap.String("caller", identity.Name))
	// A redirect would still be a step from the other site, without the session's cookie.
	s.page(w, http.StatusOK, view{page: "signedin", title: "You are signed in", data: local(a.Next)})
}

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
