// Package access decides who may use the API and the console: a request goes in; a caller with a role and topics comes
// out, or the refusal has been answered.
//
// Without tokens, only connections to a loopback address are served, and only when the Host header names a loopback host
// or a configured one: a web page that a name server points at 127.0.0.1 (DNS rebinding) sends its own name.
// With tokens, each request carries one.
package access

import (
	"context"
	"fmt"
	"net/http"
	"path"
)

// Role says what a caller may do; each includes the ones before.
type Role int

const (
	// None may do nothing: the role of a request that no guard has let through.
	None Role = iota
	// Read sees tasks and dead letters without what they carry.
	Read
	// Operate also sees what they carry, schedules, cancels, fires, replays and steers.
	Operate
	// Admin may do everything, deleting included.
	Admin
)

var roleNames = map[Role]string{Read: "read", Operate: "operate", Admin: "admin"}

// String is the role's name in the tokens file.
func (r Role) String() string { return roleNames[r] }

// ParseRole reads a role's name.
func ParseRole(name string) (Role, error) {
	for r, n := range roleNames {
		if n == name {
			return r, nil
		}
	}
	return None, fmt.Errorf("role %q is unknown: write read, operate or admin", name)
}

// Caller is who asks.
type Caller struct {
	Name string
	Role Role
	// Topics are patterns (path.Match) of the target topics that the caller may see and change. nil: all.
	Topics []string
}

// May tells whether the caller has the role.
func (c Caller) May(r Role) bool { return c.Role >= r && r > None }

// AllTopics tells whether the caller is restricted to no topics.
func (c Caller) AllTopics() bool { return c.Topics == nil }

// Topic tells whether the caller may see and change what is for a target topic.
func (c Caller) Topic(topic string) bool {
	if c.AllTopics() {
		return true
	}
	for _, p := range c.Topics {
		if ok, err := path.Match(p, topic); ok && err == nil {
			return true
		}
	}
	return false
}

type callerKey struct{}

// With returns a context in which From finds the caller.
func With(ctx context.Context, c Caller) context.Context {
	return context.WithValue(ctx, callerKey{}, c)
}

// From is the caller that a guard has let through. Where there was no guard, it is one who may do nothing.
func From(ctx context.Context) Caller {
	c, _ := ctx.Value(callerKey{}).(Caller)
	return c
}

// Require serves h to callers with the role only.
func Require(r Role, h http.HandlerFunc) http.HandlerFunc {
	return func(w http.ResponseWriter, req *http.Request) {
		if c := From(req.Context()); !c.May(r) {
			refuse(w, http.StatusForbidden, Beyond(c, r))
			return
		}
		h(w, req)
	}
}

// Beyond says that a caller lacks a role.
func Beyond(c Caller, r Role) string {
	return fmt.Sprintf("this needs the role %s, and the token %q has the role %s: use a token of that role (notyet token new)", r, c.Name, c.Role)
}
