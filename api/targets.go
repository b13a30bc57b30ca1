package api

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net/http"

	"github.com/notyet/notyet/internal/access"
	"github.com/notyet/notyet/schemas"
	"github.com/notyet/notyet/store/admin"
)

// TargetPolicy is the operators' policy of a target, in JSON.
type TargetPolicy struct {
	Topic       string  `json:"topic"                   doc:"target topic, or origin of callbacks"`
	Paused      bool    `json:"paused"`
	Rate        float64 `json:"rate,omitempty"          doc:"tasks a second, of all dispatchers together; absent: no limit"`
	MaxInFlight int     `json:"max_in_flight,omitempty" doc:"records that are sent and not acknowledged; absent: no limit"`
	Changed     int64   `json:"changed,omitempty"       doc:"Unix ms"`
	Held        int     `json:"held"                    doc:"tasks that are due and kept back; counted up to 1000"`
}

// Targets are the targets with a policy.
type Targets struct {
	Targets []TargetPolicy `json:"targets"`
}

// TargetChange changes a part of a target's policy. nil fields stay as they are.
type TargetChange struct {
	Paused      *bool    `json:"paused,omitempty"`
	Rate        *float64 `json:"rate,omitempty"          doc:"tasks a second, of all dispatchers together: 0.001 to 1000000; 0: no limit"`
	MaxInFlight *int     `json:"max_in_flight,omitempty" doc:"1 to 1000000; 0: no limit"`
}

// Bounds of a policy.
const (
	minRate     = 0.001
	maxRate     = 1e6
	maxInFlight = 1_000_000
	// heldCounted is up to where held tasks are counted.
	heldCounted = 1000
)

func (c TargetChange) check() error {
	if r := c.Rate; r != nil && *r != 0 && !(*r >= minRate && *r <= maxRate) {
		return wrong("rate", fmt.Sprint(*r), fmt.Sprintf("is not %v to %d tasks a second: write one that is, 0 for no limit, or pause the target", minRate, int(maxRate)))
	}
	if n := c.MaxInFlight; n != nil && (*n < 0 || *n > maxInFlight) {
		return wrong("max_in_flight", fmt.Sprint(*n), fmt.Sprintf("is not 1 to %d: write one that is, 0 for no limit, or pause the target", maxInFlight))
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

// said is the change that replaces the whole policy.
func (c TargetChange) said() TargetChange {
	return TargetChange{Paused: cmp.Or(c.Paused, new(bool)), Rate: cmp.Or(c.Rate, new(float64)), MaxInFlight: cmp.Or(c.MaxInFlight, new(int))}
}

// checkTarget returns the name of a target as tasks have it.
func checkTarget(name string) (string, error) {
	target, mistake := schemas.ParseTarget([]byte(name))
	if mistake != nil {
		return "", wrong("topic", mistake.Value, mistake.Problem+": "+mistake.Fix)
	}
	return target, nil
}

// Targets lists the targets with a policy, by name, and those with tasks still held.
func (l *Local) Targets(ctx context.Context, allowed func(topic string) bool) (Targets, error) {
	return listing(ctx, l, func(ctx context.Context) (Targets, error) {
		out := Targets{Targets: []TargetPolicy{}}
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
		return out, err
	})
}

func (l *Local) target(ctx context.Context, p admin.Policy) (TargetPolicy, error) {
	held, err := admin.New(l.store).CountHeld(ctx, p.Topic, heldCounted)
	return TargetPolicy{Topic: p.Topic, Paused: p.Paused, Rate: p.Rate, MaxInFlight: p.MaxInFlight, Changed: p.Changed, Held: held}, err
}

// ChangeTarget changes a target's policy, and returns the policy in force from now on.
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
		return TargetPolicy{}, wrong("topic", topic, "cannot have a policy: "+admin.ErrTooManyPolicies.Error())
	}
	if err != nil {
		return TargetPolicy{}, err
	}
	return l.target(ctx, p)
}

type changeTargetInput struct {
	Topic string `doc:"target topic, or origin of callbacks; percent-encoded" path:"topic"`
	Body  TargetChange
}

func (in *changeTargetInput) scope(c access.Caller) error { return withinTopics(c, in.Topic) }

func (s *server) listTargets(ctx context.Context, _ *nothing) (Targets, error) {
	return s.local.Targets(ctx, allowed(ctx))
}

func (s *server) setTarget(ctx context.Context, in *changeTargetInput) (TargetPolicy, error) {
	return s.local.ChangeTarget(ctx, in.Topic, in.Body.said())
}

func (s *server) changeTarget(ctx context.Context, in *changeTargetInput) (TargetPolicy, error) {
	return s.local.ChangeTarget(ctx, in.Topic, in.Body)
}

// Targets lists the targets with a policy.
func (c *Client) Targets(ctx context.Context, _ func(topic string) bool) (Targets, error) {
	return get[Targets](ctx, c, "/targets", nil, nil)
}

// ChangeTarget changes a target's policy.
func (c *Client) ChangeTarget(ctx context.Context, topic string, change TargetChange) (TargetPolicy, error) {
	return do[TargetPolicy](ctx, c, http.MethodPatch, "/targets/"+Segment(topic), change, nil)
}
