package doctor

import (
	"fmt"
	"time"

	"github.com/notyet/notyet/internal/access"
)

func issuerKeys(_ Config, x *access.Examined, where string) []Finding {
	return found(where, OK, fmt.Sprintf("%d keys for signatures", x.Keys), "")
}

// issuerClockWarning is a third of the difference with which JWTs are refused.
const issuerClockWarning = 10 * time.Second

func issuerClock(_ Config, x *access.Examined, where string) []Finding {
	apart := max(x.Ahead, -(x.Ahead + x.Within))
	switch {
	case x.Within == 0:
		return nil
	case apart > issuerClockWarning:
		return found(where, Warning, fmt.Sprintf("its clock and this machine's are at least %s apart: from 30 s on, new JWTs are refused as not valid yet, or old ones count too long", apart.Round(time.Second)), "let both keep their time by NTP or chrony")
	}
	return found(where, OK, "its clock and this machine's agree", "")
}

func signIn(c Config, x *access.Examined, where string) []Finding {
	switch {
	case c.Settings.HTTP.SignIn.ClientID == "":
		return nil
	case !x.Endpoints:
		return found(where, Failure, "its discovery document names no https addresses for signing in: nobody can sign in to the console", "let it serve the authorization code flow (authorization_endpoint, token_endpoint), or remove http.sign-in")
	case !x.S256:
		return found(where, Note, "does not say that it takes PKCE by S256, which http.sign-in uses", "see that it does")
	}
	return found(where, OK, "serves the authorization code flow with PKCE", "")
}
