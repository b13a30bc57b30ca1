package console

import (
	"maps"
	"net/http"
	"net/url"
	"strings"

	"github.com/notyet/notyet/api"
	"github.com/notyet/notyet/internal/access"
)

type timersData struct {
	Topic, Prefix string
	Timers        []api.Timer
	Next          string
	Form          timerForm
}

type timerForm struct {
	Topic, ID, Cron, Every, Timezone, Key, Value string
	Preview                                      previewData
}

type previewData struct {
	Runs  []api.Run
	Wrong string
}

func (c *Console) timers(r *http.Request) (view, error) {
	d := timersData{Topic: strings.TrimSpace(r.FormValue("topic")), Prefix: r.FormValue("prefix"), Form: timerForm{Timezone: "UTC"}}
	q := url.Values{"limit": {"50"}, "topic": {d.Topic}, "id-prefix": {d.Prefix}, "cursor": {r.FormValue("cursor")}}
	var page api.Timers
	err := c.inside.get(r.Context(), "/timers", q, &page)
	d.Timers, d.Next = page.Timers, next(r, "/timers", page.Cursor, "topic", "prefix")
	return view{page: "timers", title: "Timers", data: d}, err
}

type timerData struct {
	Timer   api.Timer
	Content *content
	Preview previewData
}

func (c *Console) timer(r *http.Request) (view, error) {
	if r.FormValue("do") != "" {
		return c.changeTimer(r)
	}
	d := timerData{}
	topic, id := r.FormValue("topic"), r.FormValue("id")
	if err := c.inside.get(r.Context(), timerAPI(topic, id), nil, &d.Timer); err != nil {
		return view{}, err
	}
	d.Content = newContent(d.Timer.Content)
	if d.Timer.State == "enabled" {
		definition := map[string]any{"cron": d.Timer.Cron, "timezone": d.Timer.Timezone, "from": d.Timer.Next}
		if d.Timer.Every != "" {
			definition = map[string]any{"every": d.Timer.Every, "from": d.Timer.From} // runs lie at from + k × every
		}
		d.Preview = c.runs(r, definition)
	}
	return view{page: "timer", title: "Timer " + id, data: d}, nil
}

func timerAPI(topic, id string) string {
	return "/timers/" + api.Segment(topic) + "/" + api.Segment(id)
}

func timerPath(topic, id string) string {
	return "/timer?" + url.Values{"topic": {topic}, "id": {id}}.Encode()
}

// preview answers with the runs alone, for the script, during the typing of a timer.
func (c *Console) preview(r *http.Request) (view, error) {
	f := readTimer(r)
	d := previewData{}
	if f.Cron+f.Every != "" {
		d = c.runs(r, f.definition())
	}
	return view{page: "preview", bare: true, data: d}, nil
}

func (c *Console) runs(r *http.Request, definition map[string]any) previewData {
	maps.DeleteFunc(definition, func(_ string, v any) bool { return v == "" || v == int64(0) })
	definition["count"] = 10
	var out api.Previewed
	_, err := c.inside.call(r.Context(), http.MethodPost, "/timers/preview", definition, &out)
	return previewData{Runs: out.Runs, Wrong: text(err)}
}

func readTimer(r *http.Request) timerForm {
	trim := func(name string) string { return strings.TrimSpace(r.FormValue(name)) }
	return timerForm{Topic: trim("topic"), ID: trim("id"), Cron: trim("cron"), Every: trim("every"), Timezone: trim("timezone"), Key: r.FormValue("key"), Value: r.FormValue("value")}
}

// definition leaves out the form's initial zone beside a typed interval.
func (f timerForm) definition() map[string]any {
	if f.Every != "" && f.Timezone == "UTC" {
		f.Timezone = ""
	}
	return map[string]any{"cron": f.Cron, "every": f.Every, "timezone": f.Timezone}
}

var timerActions = map[string]string{"set": "Set this timer", "enable": "Enable this timer", "disable": "Disable this timer", "delete": "Delete this timer"}

// changeTimer sets, enables, disables or deletes a timer, after a confirmation with the name. A new
// timer's confirmation shows the runs.
func (c *Console) changeTimer(r *http.Request) (view, error) {
	f, do := readTimer(r), r.FormValue("do")
	if do != "set" { // nobody typed the name: blanks at its ends are part of it
		f.Topic, f.ID = r.FormValue("topic"), r.FormValue("id")
	}
	what, known := timerActions[do]
	if !known {
		return view{}, badForm("do", "is none of set, enable, disable and delete")
	}
	if f.Topic == "" || f.ID == "" {
		return view{}, badForm("topic and id", "name a timer: both are needed")
	}
	if err := needs(r, access.Operate); err != nil {
		return view{}, err
	}
	back := timerPath(f.Topic, f.ID)
	if do == "set" {
		back = "/timers"
	}
	if !confirmed(r) {
		conf := confirmation{What: what, Name: f.Topic + " " + f.ID, Path: "/timer", Back: back, Danger: do == "delete",
			Fields: []field{{"do", do}, {"topic", f.Topic}, {"id", f.ID}}}
		if do == "set" {
			f.Preview = c.runs(r, f.definition())
			if f.Preview.Wrong != "" {
				return view{}, badForm("cron or every", f.Preview.Wrong)
			}
			conf.Fields = append(conf.Fields, field{"cron", f.Cron}, field{"every", f.Every}, field{"timezone", f.Timezone}, field{"key", f.Key}, field{"value", f.Value})
			conf.Detail = f.firstRuns()
		}
		return view{page: "confirm", title: what, data: conf}, nil
	}
	var e api.Event
	var status int
	var err error
	path := timerAPI(f.Topic, f.ID)
	switch do {
	case "set":
		definition := f.definition()
		maps.DeleteFunc(definition, empty)
		definition["value"] = f.Value
		if f.Key != "" {
			definition["key"] = f.Key
		}
		status, err = c.inside.call(r.Context(), http.MethodPut, path+"?wait="+answerWait, definition, &e)
	case "delete":
		status, err = c.inside.call(r.Context(), http.MethodDelete, path+"?wait="+answerWait, nil, &e)
	default:
		status, err = c.inside.call(r.Context(), http.MethodPost, path+"/"+do+"?wait="+answerWait, nil, &e)
	}
	switch do {
	case "set":
		back = timerPath(f.Topic, f.ID)
	case "delete":
		back = "/timers"
	}
	return view{to: back, outcome: newOutcome(status, e)}, err
}

func empty(_ string, v any) bool { return v == "" }

func (f timerForm) firstRuns() string {
	if len(f.Preview.Runs) == 0 {
		return "It never runs."
	}
	times := []string{}
	for _, run := range f.Preview.Runs[:min(3, len(f.Preview.Runs))] {
		times = append(times, run.Local)
	}
	return "First runs: " + strings.Join(times, ", ")
}
