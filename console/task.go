package console

import (
	"cmp"
	"errors"
	"fmt"
	"maps"
	"math"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"time"

	"github.com/notyet/notyet/api"
	"github.com/notyet/notyet/deadletter"
	"github.com/notyet/notyet/internal/access"
	"github.com/notyet/notyet/schemas"
)

type taskData struct {
	Task    api.Task
	Content *content
	Line    []moment
	Open    bool // can still be changed
	Done    *outcome
}

// moment is a point of a task's time line.
type moment struct {
	At   int64 // Unix ms; 0: not known
	What string
	Note string
	Bad  bool
}

func (c *Console) task(r *http.Request) (view, error) {
	topic, id := r.FormValue("topic"), r.FormValue("id")
	d := &taskData{}
	if err := c.inside.get(r.Context(), "/task", url.Values{"topic": {topic}, "id": {id}}, &d.Task); err != nil {
		return view{}, err
	}
	d.Content = newContent(d.Task.Content)
	d.Line = line(&d.Task)
	d.Open = slices.Contains([]string{"pending", "claimed", "waiting_report", "waiting_retry"}, d.Task.State)
	return view{page: "task", title: "Task " + id, data: d}, nil
}

// line is the known life of a task, in order. A delivery has no time of its own.
func line(t *api.Task) []moment {
	out := []moment{{At: t.Created, What: "requested"}}
	for _, e := range t.Events {
		note := e.Reason
		if e.Attempt > 0 {
			note = strings.TrimSpace(fmt.Sprintf("attempt %d. %s", e.Attempt, note))
		}
		if e.Kind != "" {
			note = strings.TrimSpace(e.Kind + ". " + note)
		}
		out = append(out, moment{At: e.At, What: string(e.State), Note: note, Bad: e.State == schemas.StateDead || e.State == schemas.StateRejected})
	}
	for _, a := range t.Changes {
		out = append(out, moment{At: a.At, What: a.What, Note: "asked for by " + a.Who + " through " + a.Via})
	}
	slices.SortStableFunc(out, func(a, b moment) int {
		return cmp.Compare(cmp.Or(a.At, math.MaxInt64), cmp.Or(b.At, math.MaxInt64)) // times that are not known are the latest
	})
	if t.Next > 0 {
		next := map[string]string{"waiting_report": "the wait for its report ends", "waiting_retry": "next attempt"}[t.State]
		out = append(out, moment{At: t.Next, What: cmp.Or(next, "due")})
	}
	return out
}

// confirmation asks once more, and names the thing.
type confirmation struct {
	What, Name string
	Path       string
	Fields     []field
	Back       string
	Danger     bool
	Detail     string
}

type field struct{ Name, Value string }

type outcome struct {
	Text string
	Bad  bool
	Back string
}

const answerWait = "5s"

var taskActions = map[string]string{"cancel": "Cancel", "stop": "Stop", "fire": "Deliver now", "move": "Move"}

func (c *Console) changeTask(r *http.Request) (view, error) {
	do, topic, id, at := r.PostFormValue("do"), r.PostFormValue("topic"), r.PostFormValue("id"), strings.TrimSpace(r.PostFormValue("at"))
	what, known := taskActions[do]
	if !known {
		return view{}, badForm("do", "is none of cancel, stop, fire and move")
	}
	if err := needs(r, access.Operate); err != nil {
		return view{}, err
	}
	back := taskPath(topic, id)
	if r.PostFormValue("confirmed") == "" {
		conf := confirmation{What: what, Name: topic + " " + id, Path: "/task", Back: back, Danger: do == "cancel" || do == "stop",
			Fields: []field{{"do", do}, {"topic", topic}, {"id", id}, {"at", at}}}
		if do == "move" {
			conf.Detail = "New due time: " + at
		}
		return view{page: "confirm", title: what, data: conf}, nil
	}
	var t api.Task
	if err := c.inside.get(r.Context(), "/task", url.Values{"topic": {topic}, "id": {id}}, &t); err != nil {
		return view{}, err
	}
	var e api.Event
	var status int
	var err error
	if do == "move" {
		status, err = c.move(r, &t, at)
	} else {
		status, err = c.inside.call(r.Context(), http.MethodPost, "/tasks/"+do+"?wait="+answerWait, target(&t), &e)
	}
	return view{page: "outcome", title: what, data: newOutcome(status, e, back, do == "move")}, err
}

// target names a task with its key, to keep the request in order with the task's others.
func target(t *api.Task) api.Target {
	out := api.Target{Topic: t.Topic, ID: t.ID}
	if t.Content != nil {
		out.Key, out.KeyBase64 = t.Key, t.KeyBase64
	}
	return out
}

// moveMargin is how long before the due time a task can be moved: the request takes a moment, and
// behind the delivery it would deliver the task once more.
const moveMargin = 30 * time.Second

// move schedules the same task again with another due time.
func (c *Console) move(r *http.Request, t *api.Task, at string) (int, error) {
	if t.State != "pending" || time.Until(time.UnixMilli(t.Due)) < moveMargin {
		return 0, badForm("id", fmt.Sprintf("the task is %s, due at %s: only one that is pending and due in %v or later can be moved. Cancel it, and schedule it again if that says cancelled",
			t.State, time.UnixMilli(t.Due).UTC().Format(time.RFC3339), moveMargin))
	}
	if t.Content == nil || t.Settings == nil {
		return 0, badForm("id", "the task's content is not kept any more, or may not be read: schedule it again")
	}
	when, err := parseWhen(at)
	if err != nil {
		return 0, err
	}
	attempts := int64(t.Settings.MaxAttempts)
	s := map[string]any{
		"id": t.ID, "at": when, "priority": t.Settings.Priority, "ack": t.Settings.Ack, "ack_timeout": t.Settings.AckTimeout,
		"max_attempts": attempts, "backoff": t.Settings.Backoff, "max_lateness": t.Settings.MaxLateness, "tag": t.Settings.Tag, "events": t.Settings.Events,
		"key": t.Key, "key_base64": t.KeyBase64, "value": t.Value, "value_base64": t.ValueBase64, "headers": t.Headers,
	}
	if t.Settings.URL != "" {
		s["url"], s["method"] = t.Settings.URL, t.Settings.Method
	} else {
		s["topic"] = t.Topic
	}
	if t.Version != nil { // a newer one that is on its way makes this request stale
		s["version"] = *t.Version
	}
	maps.DeleteFunc(s, empty)
	return c.inside.call(r.Context(), http.MethodPost, "/tasks", s, nil)
}

// parseWhen reads a time in UTC as a browser's form sends it, RFC 3339, or Unix ms.
func parseWhen(text string) (string, error) {
	ms, rej := schemas.ParseTime(text)
	if rej != nil {
		at, err := schemas.LocalTime(text, "UTC")
		if wrong, ok := errors.AsType[*schemas.Rejection](err); ok {
			return "", badForm("at", wrong.Problem+": "+wrong.Fix)
		}
		ms = at.UnixMilli()
	}
	return time.UnixMilli(ms).UTC().Format(time.RFC3339Nano), nil
}

func badForm(field, problem string) error {
	return &Problem{Status: http.StatusUnprocessableEntity, Title: "The form cannot be used", Detail: field + " " + problem}
}

// newOutcome names the winner. Without an answer in time, the request is on the way.
func newOutcome(status int, e api.Event, back string, moved bool) outcome {
	if status == http.StatusAccepted || e.State == "" {
		if moved {
			return outcome{Text: "The request with the new due time is in the intake. It takes effect when a scanner has stored it, a moment later.", Back: back}
		}
		return outcome{Text: "Kafka has the request. The answer did not come within " + answerWait + ": look at the task again.", Back: back}
	}
	text := "Answer: " + string(e.State)
	if e.Reason != "" {
		text += ". " + e.Reason
	}
	bad := e.State == schemas.StateTooLate || e.State == schemas.StateRejected || e.State == schemas.StateNotFound
	return outcome{Text: text, Bad: bad, Back: back}
}

// content is the shown part of key, value and headers.
type content struct {
	Key     string
	Value   string
	Form    string // JSON, text, hex, none
	Size    int
	Cut     bool
	Headers []field
}

const shownBytes = 64 << 10

func newContent(c *deadletter.Content) *content {
	if c == nil {
		return nil
	}
	key, value, headers, err := c.Bytes()
	if err != nil {
		return &content{Form: "none"}
	}
	out := &content{Size: len(value)}
	out.Key, _ = readable(key)
	out.Value, out.Form = readable(value)
	out.Cut = len(value) > shownBytes
	if value == nil {
		out.Form = "none"
	}
	for _, h := range headers {
		text, _ := readable(h.Value)
		out.Headers = append(out.Headers, field{visible(h.Key), text})
	}
	return out
}
