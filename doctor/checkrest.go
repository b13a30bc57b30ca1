package doctor

import (
	"fmt"
	"time"

	"github.com/notyet/notyet/internal/access"
	"github.com/notyet/notyet/internal/election"
	"github.com/notyet/notyet/internal/index"
	"github.com/notyet/notyet/internal/sendlog"
)

func eviction(_ Config, x *index.Examined, where string) []Finding {
	switch {
	case x.Policy == "":
		return found(where, Note, "its version and maxmemory-policy are not known: this user may not ask (INFO)", "see that maxmemory-policy is noeviction")
	case x.Policy != "noeviction":
		return found(where, Warning, "is Redis "+x.Version+", and maxmemory-policy is "+x.Policy+": it may drop parts of the index, whose tasks are then up to a second late", "CONFIG SET maxmemory-policy noeviction, and the same in the server's file")
	}
	return found(where, OK, "is Redis "+x.Version+", and evicts nothing", "")
}

func redisClock(_ Config, x *index.Examined, where string) []Finding {
	return clock(where, x.Ahead, x.Within)
}

func members(c Config, e *election.Examined, where string) []Finding {
	version := ""
	if e.Version != "" {
		version = "; ZooKeeper " + e.Version
	}
	switch {
	case !e.Rooted && c.Running:
		return nil
	case !e.Rooted:
		return found(where, Note, "no dispatcher has been here yet"+version, "")
	}
	return found(where, OK, fmt.Sprintf("%d dispatchers are members", len(e.Members))+version, "")
}

func ensembleClock(_ Config, e *election.Examined, where string) []Finding {
	if !e.Rooted {
		return nil
	}
	return clock(where, e.Ahead, e.Within)
}

// slowSync is how long a disk may take to make a batch durable. Each delivery waits for two syncs.
const slowSync = 50 * time.Millisecond

func sendLogDisk(c Config, d *sendlog.Examined, where string) []Finding {
	if !d.Exists {
		return found(where, Note, "does not exist: no dispatcher has run here", "")
	}
	use := "no process has it open"
	if d.InUse {
		use = "a dispatcher has it open"
	}
	const gib = 1 << 30
	var out []Finding
	if d.Sync > slowSync {
		out = append(out, Finding{Where: where, Level: Warning, Found: fmt.Sprintf("its disk takes %s to make 4 KiB durable, and each delivery waits for that twice", d.Sync.Round(time.Millisecond)), Fix: "put sendlog.dir on a local disk"})
	}
	if d.Free < min(int64(c.Settings.SendLog.MaxBytes), gib) {
		out = append(out, Finding{Where: where, Level: Warning, Found: fmt.Sprintf("its disk has %d MiB left: a full one stops deliveries", d.Free>>20), Fix: "free some space, or put sendlog.dir on another disk"})
	}
	if len(out) == 0 {
		return found(where, OK, fmt.Sprintf("%s; its disk syncs in %s and has %d GiB left", use, d.Sync.Round(100*time.Microsecond), d.Free/gib), "")
	}
	return out
}

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
