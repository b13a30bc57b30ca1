package api

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/agnivade/levenshtein"

	"github.com/notyet/notyet/internal/access"
	"github.com/notyet/notyet/schemas"
	"github.com/notyet/notyet/store/admin"
	"github.com/notyet/notyet/store/look"
)

// TargetPolicy is the operators' policy of a target, in JSON.
type TargetPolicy struct {
	Topic       string  `json:"topic"                   doc:"target topic, or origin of callbacks"`
	Paused      bool    `json:"paused"`
	Until       int64   `json:"until,omitempty"         doc:"Unix ms, when the pause ends; absent: when somebody resumes the target"`
	Rate        float64 `json:"rate,omitempty"          doc:"tasks a second, of all dispatchers together; absent: no limit"`
	MaxInFlight int     `json:"max_in_flight,omitempty" doc:"records that are sent and not acknowledged; absent: no limit"`
	Changed     int64   `json:"changed,omitempty"       doc:"Unix ms"`
	Held        int     `json:"held"                    doc:"tasks that are due and kept back; counted up to 1000"`
}

// Targets are the targets with a policy.
type Targets struct {
	Targets []TargetPolicy `json:"targets"`
	Cursor  string         `json:"cursor,omitempty" doc:"give it back for the next page; absent: that was the last"`
	Partial
}

// TargetChange changes a part of a target's policy. nil fields stay as they are.
type TargetChange struct {
	Paused      *bool    `json:"paused,omitempty"`
	Until       Instant  `json:"until,omitzero"          doc:"with paused: when the pause ends by itself, RFC 3339 or Unix ms; absent: when somebody resumes the target"`
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

// check finds mistakes. now is the database's time.
func (c TargetChange) check(now time.Time) error {
	if until := c.Until; until != (Instant{}) {
		switch {
		case c.Paused == nil || !*c.Paused:
			return wrong("until", until.String(), "is the end of a pause: send paused true beside it, or leave it out")
		case until.Millis() <= now.UnixMilli():
			return wrong("until", until.String(), "is past: write a later time, or leave it out for a pause until somebody resumes the target")
		}
	}
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
		p.Paused, p.Until = *c.Paused, c.Until.Millis()
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
	return TargetChange{Paused: cmp.Or(c.Paused, new(bool)), Until: c.Until, Rate: cmp.Or(c.Rate, new(float64)), MaxInFlight: cmp.Or(c.MaxInFlight, new(int))}
}

// checkTarget returns the name of a target as tasks have it.
func checkTarget(name string) (string, error) {
	target, mistake := schemas.ParseTarget([]byte(name))
	if mistake != nil {
		return "", wrong("topic", mistake.Value, mistake.Problem+": "+mistake.Fix)
	}
	return target, nil
}

// checkTopic is checkTarget of a filter, which need not name one.
func checkTopic(name string) error {
	if name == "" {
		return nil
	}
	_, err := checkTarget(name)
	return err
}

// TargetFilter selects targets to list.
type TargetFilter struct {
	Like   string `query:"like"   doc:"the target of this name, with or without a policy; without a policy and tasks of it, up to 5 targets with a similar name" maxLength:"255"`
	Limit  int    `query:"limit"  doc:"how many on a page; default all"                                                                                         maximum:"1000" minimum:"1"`
	Cursor string `query:"cursor" doc:"that of the page before"                                                                                                 maxLength:"1000"`
	// Allowed reports whether a target may be listed. nil: all.
	Allowed func(topic string) bool
}

func (f *TargetFilter) scope(c access.Caller) error { return withinListed(c, f.Like) } // others' are left out

// Targets lists the targets with a policy, by name, and those with tasks still held.
func (l *Local) Targets(ctx context.Context, f TargetFilter) (Targets, error) {
	return listing(ctx, l, func(ctx context.Context) (out Targets, err error) {
		out.Targets = []TargetPolicy{}
		all, err := admin.New(l.store).Policies(ctx)
		all = slices.DeleteFunc(all, func(p admin.Policy) bool { return f.Allowed != nil && !f.Allowed(p.Topic) })
		if err == nil && f.Like != "" {
			all, err = l.like(ctx, schemas.TargetName(f.Like), all, f.Allowed)
		}
		for _, p := range all {
			if err != nil || p.Topic <= f.Cursor && f.Cursor != "" {
				continue
			}
			if f.Limit > 0 && len(out.Targets) == f.Limit {
				out.Cursor = out.Targets[f.Limit-1].Topic
				break
			}
			var t TargetPolicy
			if t, err = l.target(ctx, p); err == nil && (!p.Open() || t.Held > 0 || f.Like != "") {
				out.Targets = append(out.Targets, t)
			}
		}
		return out, err
	})
}

// like returns the target of a name, or those with a similar one.
func (l *Local) like(ctx context.Context, name string, with []admin.Policy, allowed func(topic string) bool) ([]admin.Policy, error) {
	names, err := look.New(l.store).Targets(ctx, allowed)
	known := map[string]admin.Policy{}
	for _, topic := range names {
		known[topic] = admin.Policy{Topic: topic}
	}
	for _, p := range with {
		known[p.Topic] = p
	}
	if p, ok := known[name]; ok {
		return []admin.Policy{p}, err
	}
	var near []admin.Policy
	for _, topic := range similar(name, slices.Sorted(maps.Keys(known))) {
		near = append(near, known[topic])
	}
	return near, err
}

// similarNames is how many of them are shown.
const similarNames = 5

// similar returns the names that somebody may have meant, the nearest first: up to a third of the
// characters differ, or one name is the beginning of the other.
func similar(name string, names []string) []string {
	far := map[string]int{}
	most := max(1, len(name)/3)
	near := slices.DeleteFunc(names, func(other string) bool {
		begins := strings.HasPrefix(other, name) || strings.HasPrefix(name, other)
		if !begins && max(len(name)-len(other), len(other)-len(name)) > most {
			return true
		}
		far[other] = levenshtein.ComputeDistance(strings.ToLower(name), strings.ToLower(other))
		return far[other] > most && !begins
	})
	slices.SortStableFunc(near, func(a, b string) int { return cmp.Compare(far[a], far[b]) })
	return near[:min(len(near), similarNames)]
}

func (l *Local) target(ctx context.Context, p admin.Policy) (TargetPolicy, error) {
	held, err := admin.New(l.store).CountHeld(ctx, p.Topic, heldCounted)
	return TargetPolicy{Topic: p.Topic, Paused: p.Paused, Until: p.Until, Rate: p.Rate, MaxInFlight: p.MaxInFlight, Changed: p.Changed, Held: held}, err
}

// ChangeTarget changes a target's policy, and returns the policy in force from now on.
func (l *Local) ChangeTarget(ctx context.Context, topic string, c TargetChange) (TargetPolicy, error) {
	return l.changeTarget(ctx, 0, topic, c)
}

// changeTarget is ChangeTarget by a version of the rules about the databases of targets.
func (l *Local) changeTarget(ctx context.Context, version int64, topic string, c TargetChange) (TargetPolicy, error) {
	topic, err := checkTarget(topic)
	if err != nil {
		return TargetPolicy{}, err
	}
	now, err := l.store.Time(ctx)
	if err == nil {
		err = c.check(now)
	}
	if err != nil {
		return TargetPolicy{}, err
	}
	detail := map[string]any{}
	if c.Paused != nil {
		detail["paused"], detail["resumed"] = *c.Paused, !*c.Paused // what is false is left out
		detail["until"] = c.Until.Millis()
	}
	if c.Rate != nil {
		detail["rate"] = *c.Rate
	}
	if c.MaxInFlight != nil {
		detail["max_in_flight"] = *c.MaxInFlight
	}
	noted := admin.Auditing(ctx, admin.AuditEntry{What: "target", Topic: topic, Detail: admin.AuditDetail(detail)})
	p, err := admin.New(l.store).SetPolicyBy(noted, version, topic, now.UnixMilli(), c.of)
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

func (s *server) listTargets(ctx context.Context, f *TargetFilter) (out Targets, err error) {
	f.Allowed = allowed(ctx)
	err = s.cursors.page(ctx, "targets", &f.Cursor, &out.Cursor, func() (err error) {
		out, err = s.fleet.Targets(ctx, *f)
		return err
	})
	return out, err
}

func (s *server) setTarget(ctx context.Context, in *changeTargetInput) (TargetPolicy, error) {
	return s.fleet.ChangeTarget(ctx, in.Topic, in.Body.said())
}

func (s *server) changeTarget(ctx context.Context, in *changeTargetInput) (TargetPolicy, error) {
	return s.fleet.ChangeTarget(ctx, in.Topic, in.Body)
}

// Targets lists the targets with a policy.
func (c *Client) Targets(ctx context.Context, f TargetFilter) (Targets, error) {
	return get[Targets](ctx, c, "/targets", f, nil)
}

// ChangeTarget changes a target's policy.
func (c *Client) ChangeTarget(ctx context.Context, topic string, change TargetChange) (TargetPolicy, error) {
	return do[TargetPolicy](ctx, c, http.MethodPatch, "/targets/"+Segment(topic), change, nil)
}
