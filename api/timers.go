package api

import (
	"cmp"
	"context"
	"errors"
	"strconv"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/notyet/notyet/deadletter"
	"github.com/notyet/notyet/internal/access"
	"github.com/notyet/notyet/schemas"
	"github.com/notyet/notyet/store/look"
	"github.com/notyet/notyet/task"
	"github.com/notyet/notyet/timer"
)

// Timer is a timer in JSON. Times are Unix ms.
type Timer struct {
	Topic   string `json:"topic"`
	ID      string `json:"id"`
	State   string `json:"state"             doc:"enabled or disabled"`
	Next    int64  `json:"next,omitempty"    doc:"the next run, without jitter, Unix ms; absent: none"`
	Version *int64 `json:"version,omitempty"`
	Created int64  `json:"created"           doc:"Unix ms of the request that opened it"`
	Slot    int    `json:"slot"              doc:"the line that its runs stand in"`
	Runs
	Misfire string `json:"misfire"`
	Overlap string `json:"overlap"`
	// Settings and Content of each run; nil if not requested.
	Settings *Settings `json:"settings,omitempty"`
	*deadletter.Content
}

// Runs says when a timer runs. Times are Unix ms.
type Runs struct {
	Cron     string `json:"cron,omitempty"`
	Every    string `json:"every,omitempty"  doc:"duration"`
	Timezone string `json:"timezone"         doc:"IANA name"`
	From     int64  `json:"from"             doc:"first instant at which a run may lie, Unix ms"`
	Until    int64  `json:"until,omitempty"  doc:"last such instant, Unix ms"`
	Jitter   string `json:"jitter,omitempty" doc:"duration"`
}

// Timers is a page of timers. A page can be short or empty without being the last.
type Timers struct {
	Timers []Timer `json:"timers"`
	Cursor string  `json:"cursor,omitempty" doc:"give it back for the next page; absent: that was the last"`
	Partial
}

func (t *Timer) withhold() {
	t.Content = nil
	t.Settings.withhold()
}

func newTimer(v *task.Timer, now int64, content bool) Timer {
	d := v.Definition
	t := Timer{
		Topic: v.Topic, ID: v.ID, State: "enabled", Created: v.Created, Slot: v.Slot,
		Runs:    Runs{Cron: d.Cron, Timezone: cmp.Or(d.Zone, "UTC"), From: d.From, Until: d.Until},
		Misfire: cmp.Or(string(d.Misfire), string(timer.MisfireOnce)), Overlap: schemas.OverlapAllow.String(),
	}
	if d.Every > 0 {
		t.Every = d.Every.String()
	}
	if d.Jitter > 0 {
		t.Jitter = d.Jitter.String()
	}
	if d.Alone {
		t.Overlap = schemas.OverlapSkip.String()
	}
	if v.Version >= 0 {
		t.Version = &v.Version
	}
	if v.State == task.TimerDisabled {
		t.State = "disabled"
	} else if s, err := timer.Parse(d); err == nil {
		if next, ok := s.Next(now - 1); ok {
			t.Next = next
		}
	}
	if !content {
		return t
	}
	if body, err := schemas.DecodeBody(v.Body); err == nil {
		t.Content, t.Settings = deadletter.NewContent(body), newSettings(body.Settings)
	}
	return t
}

// TimerFilter selects timers to list.
type TimerFilter struct {
	Topic    string `query:"topic"     doc:"only this target topic"`
	IDPrefix string `query:"id-prefix" doc:"only ids that begin so"`
	Limit    int    `query:"limit"     default:"100"                maximum:"1000" minimum:"1"`
	Cursor   string `query:"cursor"    doc:"that of the page before" maxLength:"1000"`
	// Allowed reports whether a timer of the topic may be listed. nil: all.
	Allowed func(topic string) bool
}

func (f *TimerFilter) scope(c access.Caller) error { return withinListed(c, f.Topic) }

// Timer returns one timer with content, or look.ErrNoTimer.
func (l *Local) Timer(ctx context.Context, topic, id string) (Timer, error) {
	t, err := look.New(l.store).GetTimer(ctx, schemas.TargetName(topic), id)
	if err != nil {
		return Timer{}, err
	}
	return newTimer(&t, l.store.Clock().Millis(), true), nil
}

// Timers returns a page of timers, in the order of topics and ids.
func (l *Local) Timers(ctx context.Context, f TimerFilter) (Timers, error) {
	f.Topic = schemas.TargetName(f.Topic)
	wanted := look.TimerFilter{Topic: f.Topic, IDPrefix: f.IDPrefix, Limit: f.Limit, Allowed: f.Allowed}
	if f.Cursor != "" {
		after, ok := parseTimerCursor(f.Cursor)
		if !ok || f.Topic != "" && f.Topic != after.Topic {
			return Timers{}, wrong("cursor", f.Cursor, "is none that this list has answered: give back the one of the page before, or leave it out")
		}
		wanted.After = after
	}
	out := Timers{Timers: []Timer{}}
	page, err := listing(ctx, l, func(ctx context.Context) (look.TimerPage, error) { return look.New(l.store).ListTimers(ctx, wanted) })
	now := l.store.Clock().Millis()
	for _, t := range page.Timers {
		out.Timers = append(out.Timers, newTimer(&t, now, false))
	}
	out.Cursor = formatTimerCursor(page.More)
	return out, err
}

// Timer returns one timer with content, or look.ErrNoTimer.
func (c *Client) Timer(ctx context.Context, topic, id string) (Timer, error) {
	return get[Timer](ctx, c, timerPath(topic, id), nil, look.ErrNoTimer)
}

// Timers returns a page of timers.
func (c *Client) Timers(ctx context.Context, f TimerFilter) (Timers, error) {
	return get[Timers](ctx, c, "/timers", f, nil)
}

func (s *server) listTimers(ctx context.Context, f *TimerFilter) (out Timers, err error) {
	f.Allowed = allowed(ctx)
	err = s.cursors.page(ctx, "timers", &f.Cursor, &out.Cursor, func() (err error) {
		out, err = s.fleet.Timers(ctx, *f)
		return err
	})
	return out, err
}

func (s *server) getTimer(ctx context.Context, in *Named) (Timer, error) {
	return s.fleet.Timer(ctx, in.Topic, in.ID)
}

// Definition says when a timer runs, in a caller's words. The fields are the contract's headers.
type Definition struct {
	Cron     string   `json:"cron,omitempty"     doc:"5 fields, 6 with seconds first, or a nickname such as @daily; exactly one of cron and every" minLength:"1"`
	Every    string   `json:"every,omitempty"    doc:"duration of at least 1s; runs lie at from + k × every" minLength:"1"`
	Timezone string   `json:"timezone,omitempty" doc:"IANA name; default UTC; not with every" minLength:"1"`
	From     TimeText `json:"from,omitempty"     doc:"first instant at which a run may lie: RFC 3339, Unix ms, or a local time in timezone; default now"`
	Until    TimeText `json:"until,omitempty"    doc:"last instant at which a run may lie, in the forms of from; default none"`
}

func (d *Definition) headers(b *builder) {
	b.text(schemas.HeaderCron, d.Cron)
	b.text(schemas.HeaderEvery, d.Every)
	b.text(schemas.HeaderTimezone, d.Timezone)
	b.text(schemas.HeaderFrom, string(d.From))
	b.text(schemas.HeaderUntil, string(d.Until))
}

// SetTimer makes or replaces a timer. Key, value, headers and the settings of deliveries hold for
// each run.
type SetTimer struct {
	Intake string `json:"intake,omitempty" doc:"intake topic; default the one whose target this is, otherwise the first without a target of its own" minLength:"1"`
	Definition
	URL     string `json:"url,omitempty"     doc:"send an HTTP request to this URL instead of a record to a topic; the timer's topic is its origin" minLength:"1"`
	Method  string `json:"method,omitempty"  doc:"with url: POST (default), PUT, PATCH, DELETE or GET" minLength:"1"`
	Jitter  string `json:"jitter,omitempty"  doc:"duration: each run is due up to this later" minLength:"1"`
	Misfire string `json:"misfire,omitempty" doc:"what becomes of missed runs: once (the latest is delivered), skip or all" minLength:"1"`
	Overlap string `json:"overlap,omitempty" doc:"with ack report: allow, or skip (no new run while one is unfinished)" minLength:"1"`
	Version *int64 `json:"version,omitempty" doc:"ignored as stale when it is lower than the timer's"`
	DeliverySettings
	deadletter.Content
}

// Record returns the request as a record for an intake topic. A mistake, also in the meaning of the
// definition, is found now: a *deadletter.FieldError or a *schemas.Rejection. With a URL the topic
// is the URL's origin, or "".
func (t *SetTimer) Record(topic, id string, in Intake) (*kgo.Record, error) {
	key, value, own, err := t.Bytes()
	if err != nil {
		return nil, err
	}
	if c, rej := schemas.ParseCallbackURL([]byte(t.URL)); rej == nil && topic != "" {
		if schemas.TargetName(topic) != c.Origin {
			return nil, wrong("url", c.Origin, "is of another origin than the timer's topic: name the timer by "+c.Origin)
		}
		topic = ""
	}
	b := builder{}
	b.text(schemas.HeaderOp, schemas.OpTimer.String())
	b.target(in, topic, t.URL)
	b.text(schemas.HeaderMethod, t.Method)
	b.text(schemas.HeaderID, id)
	t.Definition.headers(&b)
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

func schedule(r *kgo.Record, in Intake) (timer.Schedule, error) {
	request, err := schemas.Decode(r, in.Limits)
	if err != nil {
		return timer.Schedule{}, err
	}
	s, err := timer.New(task.DefinitionOf(&request))
	if mistake, ok := errors.AsType[*timer.Error](err); ok {
		return s, wrong(mistake.Field, task.TimerValue(&request, mistake.Field), mistake.Problem)
	}
	return s, err
}

type setTimerInput struct {
	Waiting
	Named
	Body SetTimer
}

func (in *setTimerInput) scope(c access.Caller) error {
	return withinTarget(c, in.Topic, in.Body.URL)
}

func (s *server) setTimer(ctx context.Context, in *setTimerInput) (*answerOutput, error) {
	record := func(to Intake) (*kgo.Record, error) { return in.Body.Record(in.Topic, in.ID, to) }
	return s.askRecord(ctx, in.ID, route{in.Body.Intake, in.Topic, in.Body.URL}, record, in.Waiting)
}

// Preview asks for the runs of a definition.
type Preview struct {
	Definition
	Count int `json:"count,omitempty" doc:"how many runs; default 10"                          maximum:"1000" minimum:"1"`
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
		return Previewed{}, wrong("count", strconv.Itoa(p.Count), "is out of range: write 1 to "+strconv.Itoa(MostPreviewed))
	}
	p.Count = cmp.Or(p.Count, 10)
	b := builder{}
	b.text(schemas.HeaderOp, schemas.OpTimer.String())
	b.text(schemas.HeaderTopic, "preview")
	b.text(schemas.HeaderID, "preview")
	p.headers(&b)
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
		out.Runs = append(out.Runs, Run{At: run, Local: time.UnixMilli(run).In(zone).Format(time.RFC3339Nano), Moved: s.Shifted(run)})
	}
	return out, nil
}

type previewInput struct{ Body Preview }

func (*previewInput) scope(access.Caller) error { return nil } // it is about no topic

func (s *server) previewTimer(_ context.Context, in *previewInput) (Previewed, error) {
	return in.Body.Runs()
}
