package console

import (
	"net/http"
	"net/url"
	"slices"
	"strings"
	"time"

	"github.com/notyet/notyet/api"
	"github.com/notyet/notyet/internal/access"
)

type findData struct {
	Q, Topic, Tag, State string
	From, To             api.Instant // of due times, or of ends
	Ended                bool
	Named                []api.Task // several with the typed id
	Lists                []foundList
	None                 bool // all was looked through
	Asked                bool
	Cancels              bool // the filter can also be cancelled by
	Operate              bool
	States               []string
	cursor               string
}

func readFind(r *http.Request) (d *findData, err error) {
	trim := func(name string) string { return strings.TrimSpace(r.FormValue(name)) }
	d = &findData{Q: trim("q"), Topic: trim("topic"), Tag: trim("tag"), State: r.FormValue("state"), Ended: r.FormValue("ended") != "", States: taskStates, cursor: r.FormValue("cursor")}
	if d.From, err = instant(r, "from"); err == nil {
		d.To, err = instant(r, "to")
	}
	return d, err
}

// Fields are what is set, each with its name in a form.
func (d *findData) Fields() (out []field) {
	ended := ""
	if d.Ended {
		ended = "on"
	}
	for _, x := range []field{{"q", d.Q}, {"topic", d.Topic}, {"tag", d.Tag}, {"state", d.State}, {"from", written(d.From)}, {"to", written(d.To)}, {"ended", ended}, {"cursor", d.cursor}} {
		if x.Value != "" {
			out = append(out, x)
		}
	}
	return out
}

// page is where the lists are.
func (d *findData) page() string {
	q := url.Values{}
	for _, x := range d.Fields() {
		q.Set(x.Name, x.Value)
	}
	return "/find?" + q.Encode()
}

// rows is a list with a box for each task that can be changed.
type rows struct {
	Tasks []api.Task
	Ticks bool
}

// Rows are the lines of a list of the page.
func (d *findData) Rows(all []api.Task) rows {
	return rows{all, d.Operate && slices.ContainsFunc(all, changeable)}
}

// Box is the value of a task's box. "": it has none.
func (rows) Box(t api.Task) string {
	if !changeable(t) {
		return ""
	}
	return ticked{t.Topic, t.ID, t.Due}.value()
}

// Ticks tells whether a list has a box.
func (d *findData) Ticks() bool {
	return d.Rows(d.Named).Ticks || slices.ContainsFunc(d.Lists, func(l foundList) bool { return d.Rows(l.Tasks).Ticks })
}

func changeable(t api.Task) bool {
	return t.State == "dead" || slices.Contains(taskStates[:openStates], t.State)
}

// foundList is a page of the tasks to come, or of those that have ended.
type foundList struct {
	Ended bool
	Topic string // the target that was read from the text
	Tasks []api.Task
	Next  string // the next page; empty: all were looked through
}

// taskStates are the states of tasks to come, and behind openStates those of ended ones.
var taskStates = []string{"pending", "claimed", "waiting_report", "waiting_retry", "delivered", "succeeded", "cancelled", "stopped", "dead"}

const openStates = 4

// walkFor is how long a page looks for the first task of its lists.
const walkFor = 200 * time.Millisecond

// find goes to the task with the typed id, or shows all that have the id. Without one it lists the
// tasks whose id begins with the text: those to come, and those that have ended.
func (c *Console) find(r *http.Request) (view, error) {
	if r.FormValue("do") != "" {
		return c.changeMany(r)
	}
	d, err := readFind(r)
	v := view{page: "find", title: "Find a task", data: d}
	if err != nil {
		return v, err
	}
	if q := qualified(d); q != nil {
		return view{to: "/find?" + q.Encode()}, nil
	}
	d.Operate = needs(r, access.Operate) == nil
	byTime := written(d.From)+written(d.To) != ""
	goesOn := d.cursor != ""
	d.Asked = d.Q != "" || d.Topic != "" || d.Tag != "" || d.State != "" || byTime || d.Ended || goesOn
	if !d.Asked {
		return v, nil
	}
	readings := []reading{{d.Topic, d.Q}}
	if topic, id := split(d.Q); d.Topic == "" && topic != "" && !goesOn {
		readings = append(readings, reading{topic, id})
	}
	for _, read := range readings {
		if read.text == "" || goesOn || byTime {
			continue
		}
		var page api.Tasks
		if err := c.inside.get(r.Context(), "/tasks", url.Values{"id": {read.text}, "topic": {read.topic}}, &page); err != nil && !read.isNone(d, err) {
			return v, err
		}
		d.Named = append(d.Named, page.Tasks...)
	}
	if len(d.Named) == 1 {
		return view{to: taskPath(d.Named[0].Topic, d.Named[0].ID)}, nil
	} else if len(d.Named) > 0 {
		return v, nil
	}
	d.Cancels = d.State == "" && !d.Ended && !goesOn && (d.Q+d.Topic+d.Tag != "" || byTime)
	d.None = true
	until := time.Now().Add(walkFor)
	for _, read := range readings {
		for _, ended := range d.lists(goesOn) {
			l, err := c.walk(r, d, read, ended, until)
			if err != nil && !read.isNone(d, err) {
				return v, err
			} else if err == nil {
				d.Lists, d.None = append(d.Lists, l), d.None && len(l.Tasks) == 0 && l.Next == ""
			}
		}
	}
	return v, nil
}

// qualified returns the form that tag:, topic: and state: in the text stand for. nil: there are
// none.
func qualified(d *findData) url.Values {
	if d.Topic+d.Tag+d.State != "" {
		return nil
	}
	q, rest := url.Values{}, []string{}
	for _, word := range strings.Fields(d.Q) {
		if name, value, _ := strings.Cut(word, ":"); value != "" && (name == "tag" || name == "topic" || name == "state") {
			q.Set(name, value)
		} else {
			rest = append(rest, word)
		}
	}
	if len(q) == 0 {
		return nil
	}
	d.Q = strings.Join(rest, " ")
	for _, x := range d.Fields() {
		q.Set(x.Name, x.Value)
	}
	return q
}

// lists says whether to list ended tasks, those to come, or both.
func (d *findData) lists(goesOn bool) []bool {
	if i := slices.Index(taskStates, d.State); i >= 0 {
		return []bool{i >= openStates}
	}
	if d.Ended || goesOn {
		return []bool{d.Ended}
	}
	return []bool{false, true}
}

// reading is what a typed text may stand for: an id or its beginning, of all targets or of one. An
// id of notyet's own looks like a target and an id, so the text has both meanings.
type reading struct{ topic, text string }

// isNone tells whether an error only says that the text does not begin with a target of the caller.
func (read reading) isNone(d *findData, err error) bool {
	status := asProblem(err).Status
	return read.topic != d.Topic && (status == http.StatusForbidden || status == http.StatusUnprocessableEntity)
}

// walk reads pages until there is a task, or the time is over.
func (c *Console) walk(r *http.Request, d *findData, read reading, ended bool, until time.Time) (foundList, error) {
	l, cursor := foundList{Ended: ended}, r.FormValue("cursor")
	if read.topic != d.Topic {
		l.Topic = read.topic
	}
	for {
		q := url.Values{"limit": {"50"}, "topic": {read.topic}, "id-prefix": {read.text}, "tag": {d.Tag}, "state": {d.State}, "from": {written(d.From)}, "to": {written(d.To)}, "cursor": {cursor}}
		if ended {
			q.Set("ended", "true")
		}
		var page api.Tasks
		if err := c.inside.get(r.Context(), "/tasks", q, &page); err != nil {
			return l, err
		}
		l.Tasks, cursor = page.Tasks, page.Cursor
		if len(l.Tasks) == 0 && cursor != "" && time.Now().Before(until) {
			continue
		}
		fields := url.Values{"q": {read.text}, "topic": {read.topic}, "tag": {d.Tag}, "state": {d.State}, "from": {written(d.From)}, "to": {written(d.To)}}
		if ended {
			fields.Set("ended", "on")
		}
		l.Next = nextPage("/find", cursor, fields)
		return l, nil
	}
}

// split reads a text as "topic id", or "topic/id". An origin of callbacks has slashes itself.
func split(text string) (topic, id string) {
	if topic, id, ok := strings.Cut(text, " "); ok {
		return topic, strings.TrimSpace(id)
	}
	host := 0
	if at := strings.Index(text, "://"); at >= 0 {
		host = at + len("://")
	}
	if i := strings.IndexByte(text[host:], '/'); i >= 0 {
		return text[:host+i], text[host+i+1:]
	}
	return "", ""
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
	q := url.Values{}
	for _, f := range fields {
		q.Set(f, r.FormValue(f))
	}
	return nextPage(path, cursor, q)
}

func nextPage(path, cursor string, fields url.Values) string {
	if cursor == "" {
		return ""
	}
	q := url.Values{"cursor": {cursor}}
	for name := range fields {
		set(q, name, fields.Get(name))
	}
	return path + "?" + q.Encode()
}
