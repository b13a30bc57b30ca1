package api

import (
	"context"
	"encoding/json"
	"errors"
	"strings"

	"github.com/danielgtaylor/huma/v2"

	"github.com/notyet/notyet/deadletter"
	"github.com/notyet/notyet/schemas"
	"github.com/notyet/notyet/store/look"
)

type ctxType = context.Context

// Task is a task in JSON. Times are Unix ms.
type Task struct {
	Topic   string `json:"topic"`
	ID      string `json:"id"`
	State   string `json:"state"             doc:"pending, claimed, waiting_report, waiting_retry, delivered, succeeded, cancelled or dead"`
	Due     int64  `json:"due"               doc:"Unix ms"`
	Next    int64  `json:"next"              doc:"when something happens to it next, Unix ms; 0 once it has ended"`
	Attempt int    `json:"attempt"           doc:"deliveries made"`
	Replay  int    `json:"replay"            doc:"times replayed from the dead letters"`
	Version *int64 `json:"version,omitempty"`
	Created int64  `json:"created"           doc:"Unix ms of the request that opened it"`
	Slot    int    `json:"slot"              doc:"the line it stands in; -1: none any more"`
	// Settings and Content are nil if they were not requested, or are not kept any more.
	Settings *Settings `json:"settings,omitempty"`
	*deadletter.Content
	// Events, Changes and Waiting are those of one task that was asked for.
	Events  []TaskEvent  `json:"events,omitempty"  doc:"what is remembered of its life, in order; those before a replacement are not"`
	Changes []AuditEntry `json:"changes,omitempty" doc:"the latest changes through API and command line, the last one last"`
	Waiting int          `json:"waiting,omitempty" doc:"requests and reports that wait until its delivery has ended"`
}

// TaskEvent is an event of a task as on the results topic. The topic and id are the task's.
type TaskEvent struct {
	State   schemas.State `json:"state"`
	At      int64         `json:"at,omitempty"      doc:"when this happened, Unix ms; of a plain delivery: not before; absent: not known"`
	Due     int64         `json:"due,omitempty"     doc:"Unix ms"`
	Attempt int           `json:"attempt,omitempty"`
	Kind    string        `json:"kind,omitempty"    doc:"of dead and rejected: why"`
	Reason  string        `json:"reason,omitempty"`
}

func newTaskEvent(e schemas.Event) TaskEvent {
	return TaskEvent{State: e.State, At: e.At, Due: e.Due, Attempt: e.Attempt, Kind: e.Kind, Reason: strings.ToValidUTF8(e.Reason, "\uFFFD")}
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

func newTask(v look.View, content bool) Task {
	t := Task{Topic: v.Topic, ID: v.ID, State: v.State, Due: v.Due, Next: v.Next, Attempt: v.Attempt, Replay: v.Replay, Version: v.Version, Created: v.Created, Slot: v.Slot}
	if !content || len(v.Body) == 0 { // a cancelled task keeps no body
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

// Tasks is a page of tasks. A page can be short or empty without being the last.
type Tasks struct {
	Tasks  []Task `json:"tasks"`
	Cursor string `json:"cursor,omitempty" doc:"give it back for the next page; absent: that was the last"`
}

// Letters is a page of dead letters. It can be short, or empty, and not the last.
type Letters struct {
	deadletter.Letters
}

// Target names the task that a cancel or fire is about.
type Target struct {
	Intake  string `json:"intake,omitempty"  doc:"intake topic; default the one whose target this is, otherwise the first without a target of its own"`
	Topic   string `json:"topic,omitempty"   doc:"target topic, or the origin of an HTTP callback; default the intake's own target"`
	URL     string `json:"url,omitempty"     doc:"instead of the topic: any URL of the callback's origin"`
	ID      string `json:"id"`
	Version *int64 `json:"version,omitempty" doc:"ignored as stale when it is lower than the task's"`
	// Key is the record key. Requests about one task keep their order if they have the same key.
	Key       *string `json:"key"                  required:"false" doc:"record key: give that of the task's other requests, so that they stay in order"`
	KeyBase64 string  `json:"key_base64,omitempty"`
}

// Schedule requests a delivery. The fields are the contract's headers, with the contract's
// defaults.
type Schedule struct {
	Intake   string   `json:"intake,omitempty"    doc:"intake topic; default the one whose target this is, otherwise the first without a target of its own"`
	Topic    string   `json:"topic,omitempty"     doc:"target topic; exactly one of topic and url; default the intake's own target"`
	URL      string   `json:"url,omitempty"       doc:"send an HTTP request to this URL instead of a record to a topic"`
	Method   string   `json:"method,omitempty"    doc:"with url: POST (default), PUT, PATCH, DELETE or GET" minLength:"1"`
	ID       string   `json:"id,omitempty"        doc:"caller's id; without one a repeated request is another task" minLength:"1"`
	At       TimeText `json:"at,omitempty"        doc:"due time: RFC 3339 or Unix ms; exactly one of at and delay"`
	Delay    string   `json:"delay,omitempty"     doc:"such as 90s, 36h, PT30M or P400D; the answer's due is the due time that it makes, an estimate within a minute of the intake's horizon" minLength:"1"`
	IfExists string   `json:"if_exists,omitempty" doc:"replace, keep, merge or once" minLength:"1"`
	Merge    string   `json:"merge,omitempty"     doc:"last, sum or append" minLength:"1"`
	MaxWait  string   `json:"max_wait,omitempty"  doc:"duration" minLength:"1"`
	Version  *int64   `json:"version,omitempty"`
	DeliverySettings
	deadletter.Content
}

// DeliverySettings say how a task is delivered, and what is told about it.
type DeliverySettings struct {
	Priority    string `json:"priority,omitempty"     doc:"high, normal or low" minLength:"1"`
	Ack         string `json:"ack,omitempty"          doc:"none or report" minLength:"1"`
	AckTimeout  string `json:"ack_timeout,omitempty"  doc:"duration" minLength:"1"`
	MaxAttempts *int64 `json:"max_attempts,omitempty"`
	Backoff     string `json:"backoff,omitempty"      doc:"fixed:5s or exponential:1s:10m" minLength:"1"`
	MaxLateness string `json:"max_lateness,omitempty" doc:"duration" minLength:"1"`
	Tag         string `json:"tag,omitempty"          doc:"up to 4 tags with commas between" minLength:"1"`
	Events      string `json:"events,omitempty"       doc:"none, final or all" minLength:"1"`
}

// TimeText is a time as text or as a number.
type TimeText string

// UnmarshalJSON accepts a string or an integer.
func (t *TimeText) UnmarshalJSON(b []byte) error {
	if len(b) > 0 && b[0] == '"' {
		var s string
		err := json.Unmarshal(b, &s)
		if err == nil && s == "" {
			return errors.New("is empty: write RFC 3339 or Unix ms, or leave it out")
		}
		*t = TimeText(s)
		return err
	}
	if text := string(b); text != "null" {
		if strings.ContainsAny(text, ".eE{[tf") {
			return errors.New("write RFC 3339 in quotes, or Unix ms")
		}
		*t = TimeText(text)
	}
	return nil
}

// Schema describes the type to huma.
func (TimeText) Schema(huma.Registry) *huma.Schema {
	return &huma.Schema{OneOf: []*huma.Schema{{Type: huma.TypeString}, {Type: huma.TypeInteger, Format: "int64"}}}
}

// Published is a request's position in the intake, and what it means there.
type Published struct {
	Topic     string `json:"topic"     doc:"target topic, or the origin of an HTTP callback; default the intake's own target"`
	ID        string `json:"id"`
	Op        string `json:"op"`
	Due       int64  `json:"due"       doc:"Unix ms; 0 for cancel and fire"`
	Intake    string `json:"intake"    doc:"intake topic"`
	Partition int32  `json:"partition"`
	Offset    int64  `json:"offset"`
}
