package api

import (
	"context"
	"fmt"
	"net/http"

	"github.com/danielgtaylor/huma/v2"

	"github.com/notyet/notyet/internal/access"
	"github.com/notyet/notyet/schemas"
)

// require refuses callers without the role before it reads anything of the request.
func (s *server) require(role access.Role) func(huma.Context, func(huma.Context)) {
	return func(ctx huma.Context, next func(huma.Context)) {
		c := access.From(ctx.Context())
		switch {
		case c.Role == access.None:
			_ = huma.WriteErr(s.huma, ctx, http.StatusUnauthorized, "nobody has said who asks")
		case !c.May(role):
			_ = huma.WriteErr(s.huma, ctx, http.StatusForbidden, access.Beyond(c, role))
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

// valuable is a response with task content, which the role read may not see.
type valuable interface{ withhold() }

// withhold removes keys, values and headers, because all of them belong to the business.
func (b *body[T]) withhold() {
	if v, ok := any(&b.Body).(valuable); ok {
		v.withhold()
	}
}

func (t *Task) withhold() {
	t.Content = nil
	t.Settings.withhold()
}

// withhold removes the URL of a callback: its path may be a secret.
func (s *Settings) withhold() {
	if s != nil {
		s.URL = ""
	}
}

func (t *Tasks) withhold() {
	for i := range t.Tasks {
		t.Tasks[i].withhold()
	}
}

func (l *Letters) withhold() {
	for i := range l.Letters.Letters {
		l.Letters.Letters[i].Content = nil
	}
}
