package api

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"time"

	"github.com/danielgtaylor/huma/v2"

	"github.com/notyet/notyet/internal/access"
	"github.com/notyet/notyet/schemas"
	"github.com/notyet/notyet/store/look"
)

// Limits of a forecast: how many steps it has, a week of minutes, and how long it counts. A server
// counts some two million tasks a second.
const (
	MaxForecastSteps = 7 * 24 * 60
	forecastTime     = 500 * time.Millisecond
)

// ForecastFilter selects the tasks to count.
type ForecastFilter struct {
	Topic    string
	Tag      string
	From, To int64         // Unix ms; 0: now, and an hour after From
	Step     time.Duration // 0: a minute
	// Allowed reports whether a task of the topic may be counted. nil: all.
	Allowed func(topic string) bool
}

// Forecast is how many tasks are due in each step. Steps without tasks are left out.
type Forecast struct {
	Steps []ForecastStep `json:"steps"`
	Next  int64          `json:"next,omitempty" doc:"all before it is counted, Unix ms; there was no time for more: go on with from=next"`
	Partial
}

// ForecastStep is one step.
type ForecastStep struct {
	At    int64 `json:"at"    doc:"when the step begins, Unix ms"`
	Count int64 `json:"count" doc:"tasks whose due time, next attempt or end of the wait for a report is in the step"`
}

// Forecast counts the tasks due in each step.
func (l *Local) Forecast(ctx context.Context, f ForecastFilter) (Forecast, error) {
	f.Topic = schemas.TargetName(f.Topic)
	wanted, err := f.store(l.store.Clock().Now())
	if err != nil {
		return Forecast{}, err
	}
	return listing(ctx, l, func(ctx context.Context) (Forecast, error) {
		out := Forecast{Steps: []ForecastStep{}}
		if f.Allowed != nil && f.Topic == "" {
			topics, err := l.topics(ctx, f.Allowed)
			if wanted.Topics = topics; err != nil || len(topics) == 0 {
				return out, err
			}
		}
		steps, next, err := look.New(l.store).Forecast(ctx, wanted)
		out.Next = next
		for _, s := range steps {
			out.Steps = append(out.Steps, ForecastStep{s.At, s.Count})
		}
		return out, err
	})
}

func (f ForecastFilter) store(now time.Time) (look.ForecastFilter, error) {
	f.Step = cmp.Or(f.Step, time.Minute)
	f.From = cmp.Or(f.From, now.UnixMilli())
	f.To = cmp.Or(f.To, f.From+time.Hour.Milliseconds())
	out := look.ForecastFilter{Topic: f.Topic, Tag: f.Tag, From: f.From, To: f.To, Step: f.Step.Milliseconds(), Within: forecastTime}
	if err := checkTag(f.Tag); err != nil {
		return out, err
	}
	switch {
	case f.To <= f.From:
		return out, wrong("to", strconv.FormatInt(f.To, 10), "is not after from: write a later time in Unix ms")
	case f.Step < time.Second:
		return out, wrong("step", f.Step.String(), "is below a second: write 1s or more")
	case (f.To-f.From-1)/out.Step >= MaxForecastSteps:
		return out, wrong("step", f.Step.String(), "makes more than "+strconv.Itoa(MaxForecastSteps)+" steps between from and to: write a longer step, or a shorter range")
	}
	return out, nil
}

type forecastInput struct {
	Topic string  `query:"topic" doc:"only this target topic"`
	Own   bool    `query:"own"   doc:"without topic: the tasks of the token's topics, for a token that is for some topics only"`
	Tag   string  `query:"tag"   doc:"only tasks with this tag, by their due time; tasks that are held are left out"`
	From  Instant `query:"from"  doc:"RFC 3339 or Unix ms; default now"`
	To    Instant `query:"to"    doc:"not included; default an hour after from"`
	Step  string  `query:"step"  doc:"at least 1s; at most 10080 steps" default:"1m"`
}

func (in *forecastInput) scope(c access.Caller) error { return withinOwn(c, in.Topic, in.Own) }

func (s *server) forecast(ctx context.Context, in *forecastInput) (Forecast, error) {
	step, err := time.ParseDuration(in.Step)
	if err != nil || step <= 0 {
		return Forecast{}, wrong("step", in.Step, "is no duration: write one such as 1m")
	}
	return s.fleet.Forecast(ctx, ForecastFilter{Topic: in.Topic, Tag: in.Tag, From: in.From.Millis(), To: in.To.Millis(), Step: step, Allowed: allowed(ctx)})
}

// MostTopics is of how many topics figures are told together to a token for some topics.
const MostTopics = 100

// topics returns the allowed topics that have tasks.
func (l *Local) topics(ctx context.Context, allowed func(topic string) bool) ([]string, error) {
	topics, err := look.New(l.store).Targets(ctx, allowed)
	if len(topics) > MostTopics {
		return nil, huma.Error403Forbidden(fmt.Sprintf("the token is for some topics only, and more than %d of them have tasks: name one with topic", MostTopics))
	}
	return topics, err
}

// Forecast counts the tasks due in each step.
func (f *Fleet) Forecast(ctx context.Context, w ForecastFilter) (out Forecast, err error) {
	if l := f.alone(); l != nil {
		return l.Forecast(ctx, w)
	}
	for _, m := range f.members { // all count from the same instant
		if l := m.local.Load(); l != nil && w.From == 0 {
			w.From = l.store.Clock().Millis()
		}
	}
	replies, missing, err := each(ctx, f.databases, w.Topic, func(ctx context.Context, l *Local, _ *Member) (Forecast, error) { return l.Forecast(ctx, w) })
	if err != nil {
		return Forecast{}, err
	}
	out.Missing = missing
	counts := map[int64]int64{}
	for _, r := range replies {
		if next := r.got.Next; next > 0 && (out.Next == 0 || next < out.Next) {
			out.Next = next
		}
		for _, s := range r.got.Steps {
			counts[s.At] += s.Count
		}
	}
	out.Steps = []ForecastStep{}
	for _, at := range slices.Sorted(maps.Keys(counts)) {
		if out.Next == 0 || at < out.Next {
			out.Steps = append(out.Steps, ForecastStep{at, counts[at]})
		}
	}
	return out, nil
}

// Forecast counts the tasks due in each step.
func (c *Client) Forecast(ctx context.Context, f ForecastFilter) (Forecast, error) {
	in := forecastInput{Topic: f.Topic, Tag: f.Tag, From: At(f.From), To: At(f.To)}
	if f.Step != 0 {
		in.Step = f.Step.String()
	}
	return get[Forecast](ctx, c, "/forecast", in, nil)
}
