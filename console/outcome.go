package console

import (
	"crypto/rand"
	"encoding/base64"
	"net/http"
	"strconv"
	"strings"

	"github.com/notyet/notyet/api"
	"github.com/notyet/notyet/schemas"
)

// outcome is what became of a change. The page that the change leads to shows it, so going back and
// loading the page again send nothing once more. The text is in a cookie, and the address only has
// its number: a link cannot make a page say something.
type outcome struct {
	Text string
	Bad  bool
}

const (
	outcomeCookie = "notyet_outcome"
	outcomeField  = "outcome"
	outcomeLife   = 300     // seconds
	outcomeBytes  = 2 << 10 // browsers keep 4096 of a cookie
)

// leave gives the browser the outcome, and returns where to show it.
func (o *outcome) leave(w http.ResponseWriter, r *http.Request, to string) string {
	id, grade := rand.Text()[:8], "good"
	if o.Bad {
		grade = "bad"
	}
	text := base64.RawURLEncoding.EncodeToString([]byte(brief(visible(o.Text), outcomeBytes)))
	https := r.TLS != nil || strings.HasPrefix(r.Header.Get("Origin"), "https://")
	http.SetCookie(w, &http.Cookie{Name: outcomeCookie, Value: id + "." + grade + "." + text, Path: "/", MaxAge: outcomeLife, HttpOnly: true, Secure: https, SameSite: http.SameSiteStrictMode})
	separator := "?"
	if strings.Contains(to, "?") {
		separator = "&"
	}
	return to + separator + outcomeField + "=" + id
}

// leftOutcome returns the outcome that led to this page. nil: none did, or long ago.
func leftOutcome(r *http.Request) *outcome {
	cookie, err := r.Cookie(outcomeCookie)
	if err != nil || r.Method != http.MethodGet {
		return nil
	}
	parts := strings.Split(cookie.Value, ".")
	if len(parts) != 3 || parts[0] != r.FormValue(outcomeField) {
		return nil
	}
	text, err := base64.RawURLEncoding.DecodeString(parts[2])
	if err != nil {
		return nil
	}
	return &outcome{Text: string(text), Bad: parts[1] == "bad"}
}

// newOutcome names the winner. Without an answer in time, the request is on the way.
func newOutcome(status int, e api.Event) *outcome {
	if status == http.StatusAccepted || e.State == "" {
		return &outcome{Text: "Kafka has the request. The answer did not come within " + answerWait + ": look at the page again."}
	}
	text := "Answer: " + string(e.State)
	if e.Reason != "" {
		text += ". " + e.Reason
	}
	bad := e.State == schemas.StateTooLate || e.State == schemas.StateRejected || e.State == schemas.StateNotFound
	return &outcome{Text: text, Bad: bad}
}

// confirmation asks once more: it names the thing, and shows what the change replaces.
type confirmation struct {
	What    string // the deed, on its button
	Keep    string // on the button that changes nothing
	Name    string
	Path    string
	Fields  []field
	Back    string
	Danger  bool
	Detail  string
	Wrong   string  // for which it should perhaps not be done
	Meant   []field // the names of other things, and where each is asked about
	Changes []replaced

	Many     string // the number to be typed; "": none
	Mistyped bool
}

// replaced is a setting that a change is about. With equal values it stays.
type replaced struct{ What, Was, Becomes string }

// mostUntyped is how many tasks or letters are changed without their number being typed.
const mostUntyped = 1000

// toType returns the number that is to be typed. "": none, because few are changed.
func toType(n int64, partly, always bool) string {
	if n > mostUntyped || partly || always && n > 0 {
		return strconv.FormatInt(n, 10)
	}
	return ""
}

// typed tells whether a form has the number that its question showed.
func typed(r *http.Request) bool {
	shown := r.PostFormValue("shown")
	return shown != "" && strings.TrimSpace(r.PostFormValue("typed")) == shown
}

// confirmed tells whether the form of a confirmation was sent. An address alone confirms nothing.
func confirmed(r *http.Request) bool {
	return r.Method == http.MethodPost && r.PostFormValue("confirmed") != ""
}
