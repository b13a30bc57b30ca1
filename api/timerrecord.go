package api

import (
	"cmp"
	"errors"
	"strconv"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/notyet/notyet/deadletter"
	"github.com/notyet/notyet/schemas"
	"github.com/notyet/notyet/task"
	"github.com/notyet/notyet/timer"
)

// Definition says when a timer runs, as a caller writes it. The fields are the contract's headers.
type Definition struct {
	Cron     string   `json:"cron,omitempty"     doc:"5 fields, 6 with seconds first, or a nickname such as @daily; exactly one of cron and every" minLength:"1"`
	Every    string   `json:"every,omitempty"    doc:"duration of at least 1s; runs lie at from + k × every" minLength:"1"`
	Timezone string   `json:"timezone,omitempty" doc:"IANA name; default UTC" minLength:"1"`
	From     TimeText `json:"from,omitempty"     doc:"first instant at which a run may lie: RFC 3339 or Unix ms; default now"`
}

func (d *Definition) headers(b *builder) {
	b.text(schemas.HeaderCron, d.Cron)
	b.text(schemas.HeaderEvery, d.Every)
	b.text(schemas.HeaderTimezone, d.Timezone)
	b.text(schemas.HeaderFrom, string(d.From))
}

// SetTimer makes or replaces a timer. Key, value, headers and the settings of deliveries are those of
// each run.
type SetTimer struct {
	Intake string `json:"intake,omitempty" doc:"intake topic; default the one whose target this is, otherwise the first without a target of its own"`
	Definition
	URL     string   `json:"url,omitempty"     doc:"send an HTTP request to this URL instead of a record to a topic; the timer's topic is its origin"`
	Method  string   `json:"method,omitempty"  doc:"with url: POST (default), PUT, PATCH, DELETE or GET" minLength:"1"`
	Until   TimeText `json:"until,omitempty"   doc:"last instant at which a run may lie; default none"`
	Jitter  string   `json:"jitter,omitempty"  doc:"duration: each run is due up to this later" minLength:"1"`
	Misfire string   `json:"misfire,omitempty" doc:"what becomes of missed runs: once (the latest is delivered), skip or all" minLength:"1"`
	Overlap string   `json:"overlap,omitempty" doc:"with ack report: allow, or skip (no new run while one is unfinished)" minLength:"1"`
	Version *int64   `json:"version,omitempty" doc:"ignored as stale when it is lower than the timer's"`
	DeliverySettings
	deadletter.Content
}

// Record returns the request as a record for an intake topic. A mistake is found now, in what the
// definition means too: a *deadletter.FieldError or a *schemas.Rejection. With a URL the topic is its
// origin, or "".
func (t *SetTimer) Record(topic, id string, in Intake) (*kgo.Record, error) {
	key, value, own, err := t.Bytes()
	if err != nil {
		return nil, err
	}
	if c, rej := schemas.ParseCallbackURL([]byte(t.URL)); rej == nil && topic != "" {
		if schemas.TargetName(topic) != c.Origin {
			return nil, &deadletter.FieldError{Field: "url", Value: c.Origin, Problem: "is of another origin than the timer's topic: name the timer by " + c.Origin}
		}
		topic = ""
	}
	b := builder{}
	b.text(schemas.HeaderOp, schemas.OpTimer.String())
	b.target(in, topic, t.URL)
	b.text(schemas.HeaderMethod, t.Method)
	b.text(schemas.HeaderID, id)
	t.Definition.headers(&b)
	b.text(schemas.HeaderUntil, string(t.Until))
	b.text(schemas.HeaderJitter, t.Jitter)
	b.text(schemas.HeaderMisfire, t.Misfire)
	b.text(schemas.HeaderOverlap, t.Overlap)
	b.number(schemas.HeaderVersion, t.Version)
	t.DeliverySettings.headers(&b)
	if err := b.own(own); err != nil {
		return nil, err
	}
	r, err := b.record(in, key, value)
	if err != nil {
		return nil, err
	}
	_, err = schedule(r, in)
	return r, err
}

// schedule computes the runs of a request that sets a timer.
func schedule(r *kgo.Record, in Intake) (timer.Schedule, error) {
	request, err := schemas.Decode(r, in.Limits)
	if err != nil {
		return timer.Schedule{}, err
	}
	s, err := timer.New(task.DefinitionOf(&request))
	if wrong, ok := errors.AsType[*timer.Error](err); ok {
		return s, &deadletter.FieldError{Field: wrong.Field, Problem: wrong.Problem}
	}
	return s, err
}

// Preview asks for the runs of a definition.
type Preview struct {
	Definition
	Until TimeText `json:"until,omitempty" doc:"last instant at which a run may lie; default none"`
	Count int      `json:"count,omitempty" doc:"how many runs; default 10"                          maximum:"1000" minimum:"1"`
}

// MostPreviewed is how many runs a preview may ask for.
const MostPreviewed = 1000

// Previewed are the runs of a definition, without jitter.
type Previewed struct {
	Runs []Run `json:"runs"`
}

// Run is one run of a definition.
type Run struct {
	At    int64  `json:"at"              doc:"Unix ms"`
	Local string `json:"local"           doc:"in the definition's zone, RFC 3339"`
	Moved bool   `json:"moved,omitempty" doc:"daylight saving skips its local time: it lies at the end of the gap"`
}

// Runs computes the runs. A mistake is a *deadletter.FieldError or a *schemas.Rejection.
func (p *Preview) Runs() (Previewed, error) {
	if p.Count < 0 || p.Count > MostPreviewed {
		return Previewed{}, &deadletter.FieldError{Field: "count", Value: strconv.Itoa(p.Count), Problem: "is out of range: write 1 to " + strconv.Itoa(MostPreviewed)}
	}
	p.Count = cmp.Or(p.Count, 10)
	b := builder{}
	b.text(schemas.HeaderOp, schemas.OpTimer.String())
	b.text(schemas.HeaderTopic, "preview")
	b.text(schemas.HeaderID, "preview")
	p.headers(&b)
	b.text(schemas.HeaderUntil, string(p.Until))
	in := Intake{Topic: schemas.TopicIntake}
	r, err := b.record(in, nil, nil)
	if err != nil {
		return Previewed{}, err
	}
	s, err := schedule(r, in)
	if err != nil {
		return Previewed{}, err
	}
	zone, err := time.LoadLocation(s.Definition().Zone)
	if err != nil {
		return Previewed{}, err
	}
	out := Previewed{Runs: []Run{}}
	for run, ok := s.Next(s.Definition().From - 1); ok && len(out.Runs) < p.Count; run, ok = s.Next(run) {
		out.Runs = append(out.Runs, Run{At: run, Local: time.UnixMilli(run).In(zone).Format(time.RFC3339), Moved: s.Shifted(run)})
	}
	return out, nil
}
