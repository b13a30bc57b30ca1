package console

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"math"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/notyet/notyet/api"
	"github.com/notyet/notyet/deadletter"
	"github.com/notyet/notyet/internal/access"
	"github.com/notyet/notyet/internal/loop"
	"github.com/notyet/notyet/schemas"
)

type taskData struct {
	Task    api.Task
	Content *content
	Line    []moment
	Late    string // how late its first delivery was; "": there was none
	Open    bool   // can still be changed
	Movable bool
	Policy  string // what can be done about its target: pause or resume
}

// moment is a point of a task's time line.
type moment struct {
	At   int64 // Unix ms; 0: not known
	What string
	Note string
	Bad  bool
}

func (c *Console) task(r *http.Request) (view, error) {
	if r.FormValue("do") != "" {
		return c.changeTask(r)
	}
	topic, id := r.FormValue("topic"), r.FormValue("id")
	d := &taskData{}
	if err := c.inside.get(r.Context(), "/task", url.Values{"topic": {topic}, "id": {id}}, &d.Task); err != nil {
		return view{}, err
	}
	d.Content = newContent(d.Task.Content)
	d.Line = line(&d.Task)
	d.Late = late(&d.Task)
	d.Open = slices.Contains(taskStates[:openStates], d.Task.State)
	d.Movable = changeable(d.Task)
	if d.Policy = "pause"; d.Task.Why != nil && d.Task.Why.Reason == "paused" {
		d.Policy = "resume"
	}
	return view{page: "task", title: "Task " + id, data: d}, nil
}

// late says how late the first delivery was, as far as its time was kept.
func late(t *api.Task) string {
	for _, e := range t.Events {
		if e.State == schemas.StateDispatched && e.Attempt == 1 && e.At > 0 {
			return lasting(float64(max(e.At-t.Due, 0)))
		}
	}
	if t.State == "delivered" || t.State == "succeeded" {
		return "not kept: the event on the results topic has it"
	}
	return ""
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

type field struct{ Name, Value string }

const answerWait = "5s"

// taskActions are the deeds, and what is on the button beside.
var taskActions = map[string][2]string{
	"cancel": {"Cancel this task", "Keep it"}, "stop": {"Stop this task", "Keep it"}, "fire": {"Deliver this task now"}, "move": {"Move this task"},
}

// changeTask asks with what the task is now, and then cancels, stops, fires or moves it.
func (c *Console) changeTask(r *http.Request) (view, error) {
	do, topic, id := r.FormValue("do"), r.FormValue("topic"), r.FormValue("id")
	what, known := taskActions[do]
	if !known {
		return view{}, badForm("do", "is none of cancel, stop, fire and move")
	}
	if err := needs(r, access.Operate); err != nil {
		return view{}, err
	}
	var t api.Task
	if err := c.inside.get(r.Context(), "/task", url.Values{"topic": {topic}, "id": {id}}, &t); err != nil {
		return view{}, err
	}
	var again map[string]any
	var due api.Instant
	if do == "move" {
		var err error
		if due, err = instant(r, "at"); err != nil {
			return view{}, err
		}
		if again, err = moved(&t, written(due)); err != nil {
			return view{}, err
		}
	}
	back, zone := taskPath(topic, id), zoneOf(r)
	shown, is := r.PostFormValue("due"), strconv.FormatInt(t.Due, 10)
	another := shown != "" && shown != is // as of a ticked task: see stillAs
	if !confirmed(r) || another {
		conf := confirmation{What: what[0], Keep: what[1], Name: topic + " " + id, Path: "/task", Back: back, Danger: do == "cancel" || do == "stop",
			Fields: []field{{"do", do}, {"topic", topic}, {"id", id}, {"at", written(due)}, {"due", is}}}
		if another {
			conf.Wrong = "Its due time is another one by now: look again."
		}
		conf.Detail = "It is " + t.State + ", due " + relative(time.Until(time.UnixMilli(t.Due))) + ", at " + clockIn(zone, t.Due) + "."
		if do == "move" {
			switch {
			case t.State == "dead":
				conf.Detail += " It is scheduled again as it was. Its dead letter stays, and is not to be replayed too."
			case !movesAtOnce(&t):
				conf.Detail += " It is stopped first, and scheduled again only if that ends its attempts."
			}
			conf.Changes = []replaced{{"Due", clockIn(zone, t.Due), clockIn(zone, due.Millis())}}
		}
		return view{page: "confirm", title: what[0], data: conf}, nil
	}
	if do == "move" {
		out, err := c.move(r.Context(), &t, again)
		return view{to: back, outcome: out}, err
	}
	var e api.Event
	status, err := c.inside.call(r.Context(), http.MethodPost, "/tasks/"+do+"?wait="+answerWait, target(&t), &e)
	return view{to: back, outcome: newOutcome(status, e)}, err
}

// target names a task with its key, to keep the request in order with the task's others.
func target(t *api.Task) api.Target {
	out := api.Target{Topic: t.Topic, ID: t.ID}
	if t.Content != nil {
		out.Key, out.KeyBase64 = t.Key, t.KeyBase64
	}
	return out
}

// moveMargin is how long before the due time one request moves a task. The request takes a moment,
// and behind the delivery it would deliver the task once more.
const moveMargin = 30 * time.Second

// movesAtOnce tells whether one request moves the task.
func movesAtOnce(t *api.Task) bool {
	return t.State == "dead" || t.State == "pending" && time.Until(time.UnixMilli(t.Due)) >= moveMargin
}

const (
	// stopWait is how long a move waits for the end of the attempts.
	stopWait = "30s"
	// againFor is how long a stopped task is scheduled again: nobody else has its content.
	againFor = 20 * time.Second
)

// move sends the request of moved. A task that may be delivered meanwhile is stopped before, and
// only one that is stopped is scheduled again, also when the browser has gone away.
func (c *Console) move(ctx context.Context, t *api.Task, again map[string]any) (*outcome, error) {
	ctx = context.WithoutCancel(ctx)
	stops := !movesAtOnce(t)
	if stops {
		var e api.Event
		status, err := c.inside.call(ctx, http.MethodPost, "/tasks/stop?wait="+stopWait, target(t), &e)
		switch {
		case err != nil:
			return nil, err
		case status == http.StatusAccepted || e.State == "":
			return &outcome{Text: "It is not moved: the request to stop it was not answered within " + stopWait + ", and may still take effect. Look again. If it is stopped then, schedule it anew.", Bad: true}, nil
		case e.State != schemas.StateCancelled && e.State != schemas.StateStopped:
			return &outcome{Text: "It is not moved. " + newOutcome(status, e).Text, Bad: true}, nil
		}
	}
	began := time.Now()
	status, err := c.inside.call(ctx, http.MethodPost, "/tasks", again, nil)
	for stops && (status == http.StatusTooManyRequests || status >= http.StatusInternalServerError) && time.Since(began) < againFor {
		loop.Rest(ctx, time.Second/2)
		status, err = c.inside.call(ctx, http.MethodPost, "/tasks", again, nil)
	}
	switch {
	case err != nil && stops:
		return &outcome{Text: "It is stopped, and not scheduled again: " + text(err) + ". Schedule it anew.", Bad: true}, nil
	case err != nil:
		return nil, err
	}
	return &outcome{Text: "The request with the new due time is in the intake. It takes effect when a scanner has stored it, a moment later."}, nil
}

// moved is the request that schedules the same task again with another due time.
func moved(t *api.Task, at string) (map[string]any, error) {
	if t.State != "dead" && !slices.Contains(taskStates[:openStates], t.State) {
		return nil, badForm("id", "names a task that is "+t.State+": nothing is left to be moved. Schedule it again")
	}
	if t.Content == nil || t.Settings == nil {
		return nil, badForm("id", "names a task whose content is not kept any more, or may not be read: schedule it again")
	}
	when, err := parseWhen(time.UTC, "at", at)
	if err != nil {
		return nil, err
	}
	if due, _ := time.Parse(time.RFC3339Nano, when); due.Before(time.Now()) {
		return nil, badForm("at", "has passed ("+when+"): choose a later time, or deliver the task now")
	}
	s := unchanged(t.Settings, t.Content)
	s["id"], s["at"] = t.ID, when
	if t.Settings.URL == "" {
		s["topic"] = t.Topic
	}
	if t.Version != nil { // a newer one that is on its way makes this request stale
		s["version"] = *t.Version
	}
	maps.DeleteFunc(s, empty)
	return s, nil
}

// unchanged is what a request has to repeat of a task or a timer so that it stays as it is.
func unchanged(s *api.Settings, c *deadletter.Content) map[string]any {
	return map[string]any{
		"url": s.URL, "method": s.Method, "priority": s.Priority, "ack": s.Ack, "ack_timeout": s.AckTimeout, "max_attempts": int64(s.MaxAttempts),
		"backoff": s.Backoff, "max_lateness": s.MaxLateness, "tag": s.Tag, "events": s.Events,
		"key": c.Key, "key_base64": c.KeyBase64, "value": c.Value, "value_base64": c.ValueBase64, "headers": c.Headers,
	}
}

func badForm(field, problem string) error {
	return &Problem{Status: http.StatusUnprocessableEntity, Title: "The form cannot be used", Detail: field + " " + problem, Field: field}
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
