// Package access decides who may use the API and the console. A request goes in; a caller with a
// role and topics comes out, or a refusal.
//
// Without tokens, only connections to a loopback address are served, and only with the Host header
// of a loopback host or a configured one. A web page whose name resolves to 127.0.0.1 (DNS
// rebinding) sends its own name and is refused. With tokens, each request needs one.
package access

import (
	"context"
	"fmt"
	"net/http"
	"path"
	"slices"
	"time"

	"golang.org/x/time/rate"

	"github.com/notyet/notyet/internal/share"
)

// Role is the extent of a caller's rights. Each role includes the previous ones.
type Role int

const (
	// None may do nothing: the role of a request without a guard's admission.
	None Role = iota
	// Read sees tasks and dead letters without their content.
	Read
	// Operate also sees content, and may schedule, cancel, stop, fire, replay and change live
	// settings.
	Operate
	// Admin may do everything, including deletion.
	Admin
)

var roleNames = map[Role]string{Read: "read", Operate: "operate", Admin: "admin"}

// String returns the role's name as in the tokens file.
func (r Role) String() string { return roleNames[r] }

// ParseRole parses a role's name.
func ParseRole(name string) (Role, error) {
	for r, n := range roleNames {
		if n == name {
			return r, nil
		}
	}
	return None, fmt.Errorf("role %q is unknown: write read, operate or admin", name)
}

// Caller is the sender of a request.
type Caller struct {
	Name string
	Role Role
	// Topics are patterns (path.Match) of the caller's target topics and origins. Default none.
	Topics []string
	// Intakes are the intake topics, and their dead letters, with only the caller's targets.
	Intakes []string
	// Until is when the token ends. The zero time: never.
	Until time.Time

	// Tenant shares limited things with other tenants. "": nobody shares.
	Tenant string

	ways []way
	pace *rate.Limiter // nil: no bound
}

// way is the only intake for requests for some topics. "": any.
type way struct {
	topics []string
	intake string
}

// Through reports whether requests for a topic may go through an intake. No entry: any intake.
func (c Caller) Through(topic, intake string) bool {
	return c.ways == nil || slices.ContainsFunc(c.ways, func(w way) bool {
		return (w.intake == "" || w.intake == intake) && matches(w.topics, topic)
	})
}

// RetryAfter counts a request to the caller's requests-per-second. For a request beyond the number,
// the result is how long the caller has to wait.
func (c Caller) RetryAfter() time.Duration {
	if c.pace == nil {
		return 0
	}
	turn := c.pace.Reserve()
	wait := turn.Delay()
	if wait > 0 {
		turn.Cancel()
	}
	return wait
}

// Account names the holder of the caller's places where something is limited. Administrators of all
// topics are a tenant with a reserve, to end the work of others.
func (c Caller) Account() share.Account {
	switch {
	case c.Tenant == "":
		return share.Account{}
	case c.administers():
		return share.Account{Tenant: "administrators of all topics", Token: c.Name, Reserve: true}
	}
	return share.Account{Tenant: c.Tenant, Token: c.Name}
}

func (c Caller) administers() bool { return c.Role == Admin && c.AllTopics() }

// Ended reports whether the token has ended.
func (c Caller) Ended(now time.Time) bool { return !c.Until.IsZero() && !now.Before(c.Until) }

// May reports whether the caller has the role.
func (c Caller) May(r Role) bool { return c.Role >= r && r > None }

// Everything stands for all topics and origins, and for facts about the whole installation.
var Everything = []string{all}

const all = "*"

// AllTopics reports whether the caller may use every topic.
func (c Caller) AllTopics() bool { return slices.Contains(c.Topics, all) }

// Topic reports whether the caller may see and change a target topic's tasks. "": those of all.
func (c Caller) Topic(topic string) bool { return matches(c.Topics, topic) }

func matches(patterns []string, topic string) bool {
	return slices.Contains(patterns, all) || slices.ContainsFunc(patterns, func(pattern string) bool {
		ok, err := path.Match(pattern, topic)
		return ok && err == nil && topic != "" // * matches an empty name too
	})
}

type callerKey struct{}

// With returns a context with the caller; From reads the caller.
func With(ctx context.Context, c Caller) context.Context {
	return context.WithValue(ctx, callerKey{}, c)
}

// From returns the caller admitted by a guard. Without a guard the caller may do nothing.
func From(ctx context.Context) Caller {
	c, _ := ctx.Value(callerKey{}).(Caller)
	return c
}

// Require serves h only to callers with the role.
func Require(r Role, h http.HandlerFunc) http.HandlerFunc {
	return func(w http.ResponseWriter, req *http.Request) {
		if c := From(req.Context()); !c.May(r) {
			Refuse(w, http.StatusForbidden, Beyond(c, r))
			return
		}
		h(w, req)
	}
}

// Beyond returns the text for a caller without the role.
func Beyond(c Caller, r Role) string {
	return fmt.Sprintf("this needs the role %s, and the token %q has the role %s: use a token of that role (notyet token new, or a group in http.tokens)", r, c.Name, c.Role)
}
