package api

import (
	"context"
	"fmt"
	"net/http"
	"path"
	"slices"
	"strings"
	"unicode"

	"github.com/danielgtaylor/huma/v2"

	"github.com/notyet/notyet/internal/access"
	"github.com/notyet/notyet/schemas"
	"github.com/notyet/notyet/store/admin"
)

// requireRole refuses callers without the role before reading anything of the request.
func requireRole(api huma.API, role access.Role) func(huma.Context, func(huma.Context)) {
	return func(ctx huma.Context, next func(huma.Context)) {
		c := access.From(ctx.Context())
		switch {
		case c.Role == access.None:
			_ = huma.WriteErr(api, ctx, http.StatusUnauthorized, "nobody has said who asks")
		case !c.May(role):
			_ = huma.WriteErr(api, ctx, http.StatusForbidden, access.Beyond(c, role))
		default:
			next(ctx)
		}
	}
}

// withinTopics refuses a topic that is not one of the caller's. An empty topic means all; a caller
// restricted to topics must name one.
func withinTopics(c access.Caller, topic string) error {
	if topic == "" {
		if c.AllTopics() {
			return nil
		}
		return huma.Error403Forbidden(fmt.Sprintf("the token %q is for some topics only: name one with topic", c.Name))
	}
	target, err := checkTarget(topic)
	if err != nil || c.Topic(target) {
		return err
	}
	return huma.Error403Forbidden(fmt.Sprintf("the topic is none of those of the token %q", c.Name))
}

// withinLetters is withinTopics for dead letters. Some belong to an intake.
func withinLetters(c access.Caller, topic string) error {
	if slices.Contains(c.Intakes, topic) {
		return nil
	}
	return withinTopics(c, topic)
}

// withinListed is withinTopics for a list. The operation itself leaves out other callers' items.
func withinListed(c access.Caller, topic string) error {
	if topic == "" {
		return nil
	}
	return withinTopics(c, topic)
}

// withinOwn is withinTopics for figures. Without a topic they are those of all topics, or with own
// those of the caller's.
func withinOwn(c access.Caller, topic string, own bool) error {
	if own {
		return withinListed(c, topic)
	}
	return withinTopics(c, topic)
}

// allowed reports whether a topic is one of the caller's. nil: all are.
func allowed(ctx context.Context) func(topic string) bool {
	if caller := access.From(ctx); !caller.AllTopics() {
		return caller.Topic
	}
	return nil
}

// withinTarget refuses a task outside the caller's topics, named by its topic or by a URL. With
// both, or neither, the request's own check refuses.
func withinTarget(c access.Caller, topic, url string) error {
	if url != "" {
		target, _ := schemas.ParseCallbackURL([]byte(url))
		if err := withinTopics(c, target.Origin); err != nil || topic == "" {
			return err
		}
	}
	return withinTopics(c, topic)
}

// userHeader names the user of a calling command.
const userHeader = "Notyet-User"

// actor puts the change's actor into the context: the token with its intakes, and a command's user.
func (s *server) actor(ctx huma.Context, next func(huma.Context)) {
	c := access.From(ctx.Context())
	a := admin.Actor{Who: c.Name, Via: admin.ViaAPI, User: printable(ctx.Header(userHeader))}
	if a.User != "" {
		a.Via = admin.ViaCLI
	}
	c.Intakes = intakesOf(c, s.intakes())
	next(huma.WithContext(ctx, access.With(admin.WithActor(ctx.Context(), a), c)))
}

// intakesOf returns those of all intakes whose targets are all the caller's. Rejected requests of
// such an intake are nobody else's; those of any other may be another tenant's, with names in the
// reasons.
func intakesOf(c access.Caller, all []Intake) (names []string) {
	for _, in := range all {
		targets := in.Limits.AllowedTargets
		if len(targets) > 0 && !slices.ContainsFunc(targets, func(target string) bool { return !covers(c.Topics, target) }) {
			names = append(names, in.Topic)
		}
	}
	return names
}

// covers reports whether one of the patterns matches every name of the target's pattern. For
// patterns with other signs than *, the answer is no, unless they are the same.
func covers(patterns []string, target string) bool {
	return slices.ContainsFunc(patterns, func(p string) bool {
		wider, err := path.Match(p, target)
		return p == target || wider && err == nil && !strings.ContainsAny(p+target, `?[\`)
	})
}

// printable drops characters unfit for a header or a log.
func printable(s string) string {
	return shorten(strings.Map(func(r rune) rune {
		if unicode.IsPrint(r) && r != unicode.ReplacementChar {
			return r
		}
		return -1
	}, s), 200)
}
