package api

import (
	"context"
	"fmt"
	"net/http"
	"strings"
	"unicode"

	"github.com/danielgtaylor/huma/v2"

	"github.com/notyet/notyet/internal/access"
	"github.com/notyet/notyet/schemas"
	"github.com/notyet/notyet/store/admin"
)

// requireRole refuses callers without the role before it reads anything of the request.
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
// who is restricted to topics must name one.
func withinTopics(c access.Caller, topic string) error {
	switch {
	case c.Topic(schemas.TargetName(topic)):
		return nil
	case topic == "":
		return huma.Error403Forbidden(fmt.Sprintf("the token %q is for some topics only: name one with topic", c.Name))
	}
	return huma.Error403Forbidden(fmt.Sprintf("the topic is none of those of the token %q", c.Name))
}

// withinListed is withinTopics for a list, of which an operation leaves out what is not the caller's.
func withinListed(c access.Caller, topic string) error {
	if topic == "" {
		return nil
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

// withinTarget refuses a task that is not for one of the caller's topics. It is named by its topic, or
// by a URL; what names it twice, or not at all, the request's own check refuses.
func withinTarget(c access.Caller, topic, url string) error {
	if url != "" {
		target, _ := schemas.ParseCallbackURL([]byte(url))
		if err := withinTopics(c, target.Origin); err != nil || topic == "" {
			return err
		}
	}
	return withinTopics(c, topic)
}

// userHeader names the user of a command that calls the API.
const userHeader = "Notyet-User"

// actor puts who makes the change into the context: the token, and the user of a command that used it.
func actor(ctx huma.Context, next func(huma.Context)) {
	a := admin.Actor{Who: access.From(ctx.Context()).Name, Via: admin.ViaAPI, User: printable(ctx.Header(userHeader))}
	if a.User != "" {
		a.Via = admin.ViaCLI
	}
	next(huma.WithContext(ctx, admin.WithActor(ctx.Context(), a)))
}

// printable drops what neither a header nor a log may hold.
func printable(s string) string {
	return shorten(strings.Map(func(r rune) rune {
		if unicode.IsPrint(r) && r != unicode.ReplacementChar {
			return r
		}
		return -1
	}, s), 200)
}
