package api

import (
	"cmp"
	"context"
	"encoding/base64"
	"net/http"
	"strings"

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
	// Settings and Content are those of each run. They are nil if they were not requested.
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

// Timer returns one timer with its content, or look.ErrNoTimer.
func (l *Local) Timer(ctx context.Context, topic, id string) (Timer, error) {
	t, err := look.New(l.store).GetTimer(ctx, schemas.TargetName(topic), id)
	if err != nil {
		return Timer{}, err
	}
	return newTimer(&t, l.store.Clock().Millis(), true), nil
}

// Timers returns a page of timers, in the order of their topics and ids.
func (l *Local) Timers(ctx context.Context, f TimerFilter) (Timers, error) {
	f.Topic = schemas.TargetName(f.Topic)
	wanted := look.TimerFilter{Topic: f.Topic, IDPrefix: f.IDPrefix, Limit: f.Limit, Allowed: f.Allowed}
	if f.Cursor != "" {
		name, err := base64.RawURLEncoding.DecodeString(f.Cursor)
		topic, id, found := strings.Cut(string(name), "\x00")
		if err != nil || !found || f.Topic != "" && f.Topic != topic {
			return Timers{}, &deadletter.FieldError{Field: "cursor", Value: f.Cursor, Problem: "is none that this list has answered: give back the one of the page before, or leave it out"}
		}
		wanted.After = &look.TimerName{Topic: topic, ID: id}
	}
	out := Timers{Timers: []Timer{}}
	err := l.listing(ctx, func(ctx context.Context) error {
		page, err := look.New(l.store).ListTimers(ctx, wanted)
		now := l.store.Clock().Millis()
		for _, t := range page.Timers {
			out.Timers = append(out.Timers, newTimer(&t, now, false))
		}
		if page.More != nil {
			out.Cursor = base64.RawURLEncoding.EncodeToString([]byte(page.More.Topic + "\x00" + page.More.ID))
		}
		return err
	})
	return out, err
}

// Timer returns one timer with its content, or look.ErrNoTimer.
func (c *Client) Timer(ctx context.Context, topic, id string) (Timer, error) {
	return get[Timer](ctx, c, timerPath(topic, id), nil, look.ErrNoTimer)
}

// Timers returns a page of timers.
func (c *Client) Timers(ctx context.Context, f TimerFilter) (Timers, error) {
	return get[Timers](ctx, c, "/timers", f, nil)
}

func timerPath(topic, id string) string { return "/timers/" + Segment(topic) + "/" + Segment(id) }

func (s *server) timers() {
	const read, operate = access.Read, access.Operate
	answered := s.answered()
	const path = "/api/v1/timers/{topic}/{id}"
	register(s, read, "list-timers", http.MethodGet, "/api/v1/timers", "List timers in the order of their topics and ids", s.listTimers, s.onePage)
	register(s, read, "get-timer", http.MethodGet, path, "Show a timer; percent-encode the id", s.getTimer, s.oneThing)
	register(s, operate, "set-timer", http.MethodPut, path, "Ask to make a timer, or to replace it; wait for the answer", s.setTimer, s.limitBody, accepted, answered)
	register(s, operate, "delete-timer", http.MethodDelete, path, "Ask to delete a timer; wait for the answer", s.timerOp(schemas.OpTimerDelete), accepted, answered)
	register(s, operate, "enable-timer", http.MethodPost, path+"/enable", "Ask to enable a timer; wait for the answer", s.timerOp(schemas.OpTimerEnable), accepted, answered)
	register(s, operate, "disable-timer", http.MethodPost, path+"/disable", "Ask to disable a timer; wait for the answer", s.timerOp(schemas.OpTimerDisable), accepted, answered)
	s.askedRuns(path)
	s.timerAudits(path)
	register(s, read, "preview-timer", http.MethodPost, "/api/v1/timers/preview", "Compute the next runs of a definition, without making a timer", s.previewTimer)
}

func (f *TimerFilter) scope(c access.Caller) error { return withinListed(c, f.Topic) }

func (s *server) listTimers(ctx ctxType, f *TimerFilter) (*body[Timers], error) {
	var err error
	if f.Cursor, err = s.cursors.open(ctx, "timers", f.Cursor); err != nil {
		return nil, problem(err)
	}
	f.Allowed = allowed(ctx)
	timers, err := s.local.Timers(ctx, *f)
	if err == nil {
		timers.Cursor, err = s.cursors.seal(ctx, "timers", timers.Cursor)
	}
	return &body[Timers]{timers}, problem(err)
}

func (s *server) getTimer(ctx ctxType, in *pathInput) (*body[Timer], error) {
	t, err := s.local.Timer(ctx, in.Topic, in.ID)
	return &body[Timer]{t}, problem(err)
}

type setTimerInput struct {
	Waiting
	Topic string `path:"topic"`
	ID    string `path:"id"`
	Body  SetTimer
}

func (in *setTimerInput) scope(c access.Caller) error {
	return withinTarget(c, in.Topic, in.Body.URL)
}

func (s *server) setTimer(ctx ctxType, in *setTimerInput) (*answerOutput, error) {
	record := func(to Intake) (*kgo.Record, error) { return in.Body.Record(in.Topic, in.ID, to) }
	return s.askRecord(ctx, in.ID, to{in.Body.Intake, in.Topic}, record, in.Waiting)
}

func (s *server) timerOp(op schemas.Op) func(ctxType, *pathTarget) (*answerOutput, error) {
	return func(ctx ctxType, in *pathTarget) (*answerOutput, error) {
		return s.ask(ctx, op, in.target(), in.Waiting)
	}
}

type previewInput struct{ Body Preview }

func (*previewInput) scope(access.Caller) error { return nil } // it is about no topic

func (s *server) previewTimer(_ ctxType, in *previewInput) (*body[Previewed], error) {
	runs, err := in.Body.Runs()
	return &body[Previewed]{runs}, problem(err)
}
