package console

import (
	"net/http"
	"net/url"
	"strings"

	"github.com/notyet/notyet/api"
)

type findData struct {
	Q, Topic, Tag, State string
	Ended                bool
	Tasks                []api.Task
	Next                 string // the next page; empty: none
	Asked                bool
	States               []string
}

var taskStates = []string{"pending", "claimed", "waiting_report", "waiting_retry", "delivered", "succeeded", "cancelled", "stopped", "dead"}

// find looks for a task by topic and id. Without such a task, or without a topic, the tasks are
// listed whose id begins with the text.
func (c *Console) find(r *http.Request) (view, error) {
	d := &findData{Q: strings.TrimSpace(r.FormValue("q")), Topic: strings.TrimSpace(r.FormValue("topic")), Tag: strings.TrimSpace(r.FormValue("tag")), State: r.FormValue("state"), Ended: r.FormValue("ended") != "", States: taskStates}
	v := view{page: "find", title: "Find a task", data: d}
	d.Asked = d.Q != "" || d.Topic != "" || d.Tag != "" || d.State != "" || d.Ended || r.FormValue("cursor") != ""
	if !d.Asked {
		return v, nil
	}
	prefix := d.Q
	if topic, id := d.named(); id != "" && r.FormValue("cursor") == "" {
		var t api.Task
		err := c.inside.get(r.Context(), "/task", url.Values{"topic": {topic}, "id": {id}}, &t)
		if err == nil {
			return view{to: taskPath(topic, id)}, nil
		}
		if d.Topic == "" && isNotFound(err) {
			d.Topic, prefix = topic, id
		} else if !isNotFound(err) {
			return v, err
		}
	}
	q := url.Values{"limit": {"50"}, "topic": {d.Topic}, "id-prefix": {prefix}, "tag": {d.Tag}, "state": {d.State}, "cursor": {r.FormValue("cursor")}}
	if d.Ended {
		q.Set("ended", "true")
	}
	var page api.Tasks
	if err := c.inside.get(r.Context(), "/tasks", q, &page); err != nil {
		return v, err
	}
	d.Tasks = page.Tasks
	d.Next = next(r, "/find", page.Cursor, "q", "topic", "tag", "state", "ended")
	return v, nil
}

// named splits the typed text into a topic and an id: with a topic of its own, "topic id", or
// "topic/id". An origin of callbacks has slashes itself.
func (d *findData) named() (topic, id string) {
	if d.Topic != "" {
		return d.Topic, d.Q
	}
	if topic, id, ok := strings.Cut(d.Q, " "); ok {
		return topic, strings.TrimSpace(id)
	}
	if strings.Contains(d.Q, "://") {
		at := strings.Index(d.Q, "://") + 3
		if i := strings.IndexByte(d.Q[at:], '/'); i >= 0 {
			return d.Q[:at+i], d.Q[at+i+1:]
		}
		return "", ""
	}
	topic, id, _ = strings.Cut(d.Q, "/")
	return topic, id
}

func taskPath(topic, id string) string {
	return "/task?" + url.Values{"topic": {topic}, "id": {id}}.Encode()
}

func set(q url.Values, name, value string) {
	if value != "" {
		q.Set(name, value)
	}
}

// next is the path of the next page, with the named fields of this one.
func next(r *http.Request, path, cursor string, fields ...string) string {
	if cursor == "" {
		return ""
	}
	q := url.Values{"cursor": {cursor}}
	for _, f := range fields {
		set(q, f, r.FormValue(f))
	}
	return path + "?" + q.Encode()
}
