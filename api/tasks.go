package api

import (
	"context"
	"errors"
	"slices"
	"strings"

	"github.com/danielgtaylor/huma/v2"

	"github.com/notyet/notyet/deadletter"
	"github.com/notyet/notyet/internal/access"
	"github.com/notyet/notyet/schemas"
	"github.com/notyet/notyet/store/look"
)

// Task is a task in JSON. Times are Unix ms.
type Task struct {
	Topic   string `json:"topic"`
	ID      string `json:"id"`
	State   string `json:"state"             doc:"pending, claimed, waiting_report, waiting_retry, delivered, succeeded, cancelled, stopped or dead"`
	Due     int64  `json:"due"               doc:"Unix ms"`
	Next    int64  `json:"next"              doc:"when something happens to it next, Unix ms; 0 once it has ended"`
	Attempt int    `json:"attempt"           doc:"deliveries made"`
	Snoozed int    `json:"snoozed,omitempty" doc:"how many of them its consumer has snoozed: they count as no attempts"`
	Replay  int    `json:"replay"            doc:"times replayed from the dead letters"`
	Version *int64 `json:"version,omitempty"`
	Created int64  `json:"created"           doc:"Unix ms of the request that opened it"`
	Slot    int    `json:"slot"              doc:"the line it stands in; -1: none any more"`
	// Settings and Content are nil if they were not requested, or are not kept any more.
	Settings *Settings `json:"settings,omitempty"`
	*deadletter.Content
	// Why, Events, Changes and Waiting are given for a single task only.
	Why     *Why         `json:"why,omitempty"     doc:"the cause of its wait, or of its end as a dead letter"`
	Events  []TaskEvent  `json:"events,omitempty"  doc:"what is remembered of its life, in order; those before a replacement are not"`
	Changes []AuditEntry `json:"changes,omitempty" doc:"the latest changes through API and command line, the last one last"`
	Waiting []Awaiting   `json:"waiting,omitempty" doc:"the first 20 requests and reports that are decided later, requests in the order in which that happens"`
	Waits   int          `json:"waits,omitempty"   doc:"how many there are"`
}

// Awaiting is a request or a report to be decided later.
type Awaiting struct {
	Op      string `json:"op"                doc:"op of the request, or report"`
	Request string `json:"request,omitempty" doc:"its place: topic/partition/offset"`
	For     string `json:"for"               doc:"what it waits for"`
}

// Awaits returns the reason for which a request about the task waits; "": it does not wait here.
func (t *Task) Awaits(request string) string {
	i := slices.IndexFunc(t.Waiting, func(w Awaiting) bool { return w.Request == request })
	switch {
	case i >= 0:
		return t.Waiting[i].For
	case t.Waits > len(t.Waiting):
		return "the requests before it"
	}
	return ""
}

// TaskEvent is an event of a task as on the results topic. The topic and id are the task's.
type TaskEvent struct {
	State   schemas.State `json:"state"`
	At      int64         `json:"at,omitempty"      doc:"when this happened, Unix ms; absent: not kept, as of a plain delivery"`
	Due     int64         `json:"due,omitempty"     doc:"Unix ms"`
	Attempt int           `json:"attempt,omitempty"`
	Kind    string        `json:"kind,omitempty"    doc:"of dead and rejected: why"`
	Reason  string        `json:"reason,omitempty"`
}

// Settings are a task's own, named like the contract's headers.
type Settings struct {
	URL         string `json:"url,omitempty"          doc:"of an HTTP callback; not for the role read"`
	Method      string `json:"method,omitempty"       doc:"of an HTTP callback"`
	Priority    string `json:"priority"`
	Ack         string `json:"ack"`
	AckTimeout  string `json:"ack_timeout,omitempty"`
	MaxAttempts int    `json:"max_attempts"`
	Backoff     string `json:"backoff"`
	MaxLateness string `json:"max_lateness,omitempty"`
	Tag         string `json:"tag,omitempty"`
	Events      string `json:"events"`
}

// Tasks is a page of tasks. A page can be short or empty without being the last.
type Tasks struct {
	Tasks  []Task `json:"tasks"`
	Cursor string `json:"cursor,omitempty" doc:"give it back for the next page; absent: that was the last"`
	Partial
}

func newTask(v look.View, content bool) Task {
	t := Task{Topic: v.Topic, ID: v.ID, State: v.State, Due: v.Due, Next: v.Next, Attempt: v.Attempt, Snoozed: v.Snoozed, Replay: v.Replay, Version: v.Version, Created: v.Created, Slot: v.Slot}
	if !content || len(v.Body) == 0 { // one that was cancelled or stopped keeps no body
		return t
	}
	body, err := schemas.DecodeBody(v.Body)
	if err != nil {
		body = schemas.Body{Value: v.Body, Settings: schemas.DefaultSettings()} // only the raw bytes are left
	}
	t.Content, t.Settings = deadletter.NewContent(body), newSettings(body.Settings)
	return t
}

func newSettings(s schemas.Settings) *Settings {
	out := &Settings{URL: s.Callback.URL, Method: s.Callback.Method, Priority: s.Priority.String(), Ack: s.Ack.String(), MaxAttempts: s.MaxAttempts, Backoff: s.Backoff.String(), Events: s.Events.String(), Tag: s.Tag}
	if s.Ack == schemas.AckReport || s.Callback.URL != "" {
		out.AckTimeout = s.AckTimeout.String()
	}
	if s.MaxLateness > 0 {
		out.MaxLateness = s.MaxLateness.String()
	}
	return out
}

func newTaskEvent(e schemas.Event) TaskEvent {
	return TaskEvent{State: e.State, At: e.At, Due: e.Due, Attempt: e.Attempt, Kind: e.Kind, Reason: strings.ToValidUTF8(e.Reason, "\uFFFD")}
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

// TaskFilter selects tasks to list.
type TaskFilter struct {
	Topic    string  `query:"topic"     doc:"only this target topic"`
	ID       string  `query:"id"        doc:"the tasks with this id, of all targets that have tasks and in any state; topic alone may stand beside it"`
	IDPrefix string  `query:"id-prefix" doc:"only ids that begin so"`
	Tag      string  `query:"tag"       doc:"only tasks with this tag; the order is then that of due times, and those that come again, wait for a report or are held are last"`
	State    string  `query:"state"     doc:"only tasks in this state; one of ended tasks implies ended" enum:"pending,claimed,waiting_report,waiting_retry,delivered,succeeded,cancelled,stopped,dead"`
	From     Instant `query:"from"      doc:"only what is due, or has ended, at or after: RFC 3339 or Unix ms"`
	To       Instant `query:"to"        doc:"only what is due, or has ended, before"`
	Limit    int     `query:"limit"     default:"100"                                                    maximum:"1000" minimum:"1"`
	Cursor   string  `query:"cursor"    doc:"that of the page before"                                    maxLength:"1000"`
	Ended    bool    `query:"ended"     doc:"those that ended last instead of those to come"`
	Content  bool    `query:"content"   doc:"with key, value and headers; pages are then shorter"`
	// Allowed reports whether a task of the topic may be listed. nil: all.
	Allowed func(topic string) bool
}

func (f *TaskFilter) scope(c access.Caller) error {
	if f.Content && !c.May(access.Operate) {
		return huma.Error403Forbidden("content: " + access.Beyond(c, access.Operate))
	}
	return withinListed(c, f.Topic)
}

// Task returns one task with content and history, or look.ErrNotFound.
func (l *Local) Task(ctx context.Context, topic, id string) (Task, error) {
	v, history, err := look.New(l.store).GetHistory(ctx, schemas.TargetName(topic), id)
	if err != nil {
		return Task{}, err
	}
	t := newTask(v, true)
	t.Waits = history.Waits
	for _, w := range history.Waiting {
		t.Waiting = append(t.Waiting, Awaiting(w))
	}
	for _, e := range history.Events {
		t.Events = append(t.Events, newTaskEvent(e))
	}
	for _, e := range history.Changes {
		t.Changes = append(t.Changes, newAuditEntry(e))
	}
	l.explain(ctx, &t)
	return t, nil
}

// Tasks returns a page of tasks: the next due first, or the last ended first.
func (l *Local) Tasks(ctx context.Context, f TaskFilter) (Tasks, error) {
	if f.ID != "" {
		return l.tasksWithID(ctx, f)
	}
	after, err := parseCursor(f.Cursor, f.Tag)
	if err != nil {
		return Tasks{}, err
	}
	page, err := l.tasksAfter(ctx, f, after)
	if err != nil {
		return Tasks{}, err
	}
	out := Tasks{Tasks: make([]Task, 0, len(page.Tasks)), Cursor: formatCursor(page.More)}
	for _, v := range page.Tasks {
		out.Tasks = append(out.Tasks, newTask(v, f.Content))
	}
	return out, nil
}

func (l *Local) tasksAfter(ctx context.Context, f TaskFilter, after *look.ListPlace) (page look.ListPage, err error) {
	if err := checkTag(f.Tag); err != nil {
		return page, err
	}
	return listing(ctx, l, func(ctx context.Context) (look.ListPage, error) {
		return look.New(l.store).List(ctx, look.ListFilter{
			Topic: schemas.TargetName(f.Topic), IDPrefix: f.IDPrefix, Tag: f.Tag, State: f.State, From: f.From.Millis(), To: f.To.Millis(), Limit: f.Limit, Ended: f.Ended, Body: f.Content, After: after, Allowed: f.Allowed,
		})
	})
}

func (l *Local) tasksWithID(ctx context.Context, f TaskFilter) (Tasks, error) {
	if f.IDPrefix+f.Tag+f.State+f.Cursor != "" || f.Ended || f.Content || f.From != (Instant{}) || f.To != (Instant{}) {
		return Tasks{}, wrong("id", f.ID, "stands beside other filters: topic alone may, leave out the others")
	}
	if topic := schemas.TargetName(f.Topic); topic != "" {
		v, err := look.New(l.store).Get(ctx, topic, f.ID)
		if errors.Is(err, look.ErrNotFound) {
			return Tasks{Tasks: []Task{}}, nil
		}
		return Tasks{Tasks: []Task{newTask(v, false)}}, err
	}
	found, err := listing(ctx, l, func(ctx context.Context) ([]look.View, error) { return look.New(l.store).Find(ctx, f.ID, f.Allowed) })
	out := Tasks{Tasks: make([]Task, 0, len(found))}
	for _, v := range found {
		out.Tasks = append(out.Tasks, newTask(v, false))
	}
	return out, err
}

// Task returns one task with content, or look.ErrNotFound.
func (c *Client) Task(ctx context.Context, topic, id string) (Task, error) {
	return get[Task](ctx, c, "/task", queryInput{topic, id}, look.ErrNotFound)
}

// Tasks returns a page of tasks.
func (c *Client) Tasks(ctx context.Context, f TaskFilter) (Tasks, error) {
	return get[Tasks](ctx, c, "/tasks", f, nil)
}

func (s *server) listTasks(ctx context.Context, f *TaskFilter) (out Tasks, err error) {
	f.Allowed = allowed(ctx)
	err = s.cursors.page(ctx, "tasks", &f.Cursor, &out.Cursor, func() (err error) {
		out, err = s.fleet.Tasks(ctx, *f)
		return err
	})
	return out, err
}

func (s *server) getTask(ctx context.Context, in *Named) (Task, error) {
	return s.fleet.Task(ctx, in.Topic, in.ID)
}

type queryInput struct {
	Topic string `query:"topic" required:"true"`
	ID    string `query:"id"    required:"true"`
}

func (in *queryInput) scope(c access.Caller) error { return withinTopics(c, in.Topic) }

func (s *server) findTask(ctx context.Context, in *queryInput) (Task, error) {
	return s.fleet.Task(ctx, in.Topic, in.ID)
}
