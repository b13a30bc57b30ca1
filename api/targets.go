package api

import (
	"context"
	"errors"
	"fmt"
	"math"
	"net/http"

	"github.com/notyet/notyet/deadletter"
	"github.com/notyet/notyet/internal/access"
	"github.com/notyet/notyet/schemas"
	"github.com/notyet/notyet/store/admin"
)

// TargetPolicy is what operators have said about a target, in JSON.
type TargetPolicy struct {
	Topic       string  `json:"topic"                   doc:"target topic, or origin of callbacks"`
	Paused      bool    `json:"paused"`
	Rate        float64 `json:"rate,omitempty"          doc:"tasks a second, of all dispatchers together; absent: no limit"`
	MaxInFlight int     `json:"max_in_flight,omitempty" doc:"records that are sent and not acknowledged; absent: no limit"`
	Changed     int64   `json:"changed,omitempty"       doc:"Unix ms"`
	Held        int     `json:"held"                    doc:"tasks that are due and kept back; counted up to 1000"`
}

// Targets are the targets of which something was said.
type Targets struct {
	Targets []TargetPolicy `json:"targets"`
}

// TargetChange changes some of what was said about a target. What is nil stays as it is.
type TargetChange struct {
	Paused      *bool    `json:"paused,omitempty"`
	Rate        *float64 `json:"rate,omitempty"          doc:"tasks a second, of all dispatchers together: 0.001 to 1000000; 0: no limit"`
	MaxInFlight *int     `json:"max_in_flight,omitempty" doc:"1 to 1000000; 0: no limit"`
}

// Bounds of what can be said about a target.
const (
	minRate     = 0.001
	maxRate     = 1e6
	maxInFlight = 1_000_000
	// heldCounted is up to where held tasks are counted.
	heldCounted = 1000
)

func (c TargetChange) check() error {
	wrong := func(field string, value any, problem string) error {
		return &deadletter.FieldError{Field: field, Value: fmt.Sprint(value), Problem: problem}
	}
	if r := c.Rate; r != nil && *r != 0 && !(*r >= minRate && *r <= maxRate && !math.IsNaN(*r)) {
		return wrong("rate", *r, fmt.Sprintf("is not %v to %d tasks a second: write one that is, 0 for no limit, or pause the target", minRate, int(maxRate)))
	}
	if n := c.MaxInFlight; n != nil && (*n < 0 || *n > maxInFlight) {
		return wrong("max_in_flight", *n, fmt.Sprintf("is not 1 to %d: write one that is, 0 for no limit, or pause the target", maxInFlight))
	}
	return nil
}

func (c TargetChange) of(p admin.Policy) admin.Policy {
	if c.Paused != nil {
		p.Paused = *c.Paused
	}
	if c.Rate != nil {
		p.Rate = *c.Rate
	}
	if c.MaxInFlight != nil {
		p.MaxInFlight = *c.MaxInFlight
	}
	return p
}

// Said is the change that leaves nothing of what was said before.
func (c TargetChange) Said() TargetChange {
	out := TargetChange{Paused: new(bool), Rate: new(float64), MaxInFlight: new(int)}
	if c.Paused != nil {
		out.Paused = c.Paused
	}
	if c.Rate != nil {
		out.Rate = c.Rate
	}
	if c.MaxInFlight != nil {
		out.MaxInFlight = c.MaxInFlight
	}
	return out
}

// checkTarget returns the name under which tasks of a target are known.
func checkTarget(name string) (string, error) {
	wrong := func(problem string) (string, error) {
		return "", &deadletter.FieldError{Field: "topic", Value: name, Problem: problem}
	}
	if schemas.IsOrigin(name) {
		origin, rejection := schemas.ParseOrigin([]byte(name))
		if rejection != nil {
			return wrong(rejection.Problem + ": " + rejection.Fix)
		}
		return origin, nil
	}
	if !schemas.ValidTopic(name) {
		return wrong("is no name of a topic: write 1 to 249 of a-z A-Z 0-9 . _ -, or the origin of a callback such as https://shop.example")
	}
	return name, nil
}

// Targets lists the targets of which something was said, by name, and those that still have held tasks.
func (l *Local) Targets(ctx context.Context, allowed func(topic string) bool) (Targets, error) {
	out := Targets{Targets: []TargetPolicy{}}
	err := l.listing(ctx, func(ctx context.Context) error {
		all, err := admin.New(l.store).Policies(ctx)
		for _, p := range all {
			if err != nil || allowed != nil && !allowed(p.Topic) {
				continue
			}
			var t TargetPolicy
			if t, err = l.target(ctx, p); err == nil && (!p.Open() || t.Held > 0) {
				out.Targets = append(out.Targets, t)
			}
		}
		return err
	})
	return out, err
}

func (l *Local) target(ctx context.Context, p admin.Policy) (TargetPolicy, error) {
	held, err := admin.New(l.store).CountHeld(ctx, p.Topic, heldCounted)
	return TargetPolicy{Topic: p.Topic, Paused: p.Paused, Rate: p.Rate, MaxInFlight: p.MaxInFlight, Changed: p.Changed, Held: held}, err
}

// ChangeTarget changes what is said about a target, and returns what is in force from now on.
func (l *Local) ChangeTarget(ctx context.Context, topic string, c TargetChange) (TargetPolicy, error) {
	topic, err := checkTarget(topic)
	if err != nil {
		return TargetPolicy{}, err
	}
	if err := c.check(); err != nil {
		return TargetPolicy{}, err
	}
	now, err := l.store.Time(ctx)
	if err != nil {
		return TargetPolicy{}, err
	}
	detail := map[string]any{}
	if c.Paused != nil {
		detail["paused"], detail["resumed"] = *c.Paused, !*c.Paused // what is false is left out
	}
	if c.Rate != nil {
		detail["rate"] = *c.Rate
	}
	if c.MaxInFlight != nil {
		detail["max_in_flight"] = *c.MaxInFlight
	}
	noted := admin.Auditing(ctx, admin.AuditEntry{What: "target", Topic: topic, Detail: admin.AuditDetail(detail)})
	p, err := admin.New(l.store).SetPolicy(noted, topic, now.UnixMilli(), c.of)
	if errors.Is(err, admin.ErrTooManyPolicies) {
		return TargetPolicy{}, &deadletter.FieldError{Field: "topic", Value: topic, Problem: "cannot have a policy: " + admin.ErrTooManyPolicies.Error()}
	}
	if err != nil {
		return TargetPolicy{}, err
	}
	return l.target(ctx, p)
}

// SetTarget is ChangeTarget that leaves nothing of what was said before.
func (l *Local) SetTarget(ctx context.Context, topic string, c TargetChange) (TargetPolicy, error) {
	return l.ChangeTarget(ctx, topic, c.Said())
}

type listTargetsInput struct{}

func (*listTargetsInput) scope(access.Caller) error { return nil } // the handler removes others' topics

type changeTargetInput struct {
	Topic string `doc:"target topic, or origin of callbacks; percent-encoded" path:"topic"`
	Body  TargetChange
}

func (in *changeTargetInput) scope(c access.Caller) error { return withinTopics(c, in.Topic) }

func (s *server) targets() {
	const read, operate = access.Read, access.Operate
	register(s, read, "list-targets", http.MethodGet, "/api/v1/targets", "List the targets that are paused or limited", s.listTargets)
	register(s, operate, "set-target", http.MethodPut, "/api/v1/targets/{topic}", "Pause, resume or limit a target; what is left out is no limit; in force within a second", s.setTarget)
	register(s, operate, "change-target", http.MethodPatch, "/api/v1/targets/{topic}", "The same; what is left out stays as it is", s.changeTarget)
}

func (s *server) listTargets(ctx ctxType, _ *listTargetsInput) (*body[Targets], error) {
	out, err := s.local.Targets(ctx, allowed(ctx))
	return &body[Targets]{out}, problem(err)
}

func (s *server) setTarget(ctx ctxType, in *changeTargetInput) (*body[TargetPolicy], error) {
	out, err := s.local.SetTarget(ctx, in.Topic, in.Body)
	return &body[TargetPolicy]{out}, problem(err)
}

func (s *server) changeTarget(ctx ctxType, in *changeTargetInput) (*body[TargetPolicy], error) {
	out, err := s.local.ChangeTarget(ctx, in.Topic, in.Body)
	return &body[TargetPolicy]{out}, problem(err)
}

// Targets lists the targets of which something was said.
func (c *Client) Targets(ctx context.Context, _ func(topic string) bool) (Targets, error) {
	return get[Targets](ctx, c, "/targets", nil, nil)
}

// ChangeTarget changes what is said about a target.
func (c *Client) ChangeTarget(ctx context.Context, topic string, change TargetChange) (TargetPolicy, error) {
	return do[TargetPolicy](ctx, c, http.MethodPatch, "/targets/"+Segment(topic), change, nil)
}
