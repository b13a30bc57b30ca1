package console

import (
	"cmp"
	"context"
	"math"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"time"

	"github.com/notyet/notyet/api"
	"github.com/notyet/notyet/internal/access"
	"github.com/notyet/notyet/schemas"
)

type targetsData struct {
	Silent  []string // they do not answer, as far as it is known
	Targets []api.TargetPolicy
	Next    string
}

func (c *Console) targets(r *http.Request) (view, error) {
	if r.FormValue("do") != "" {
		return c.changeTarget(r)
	}
	var page api.Targets
	err := c.inside.get(r.Context(), "/targets", url.Values{"limit": {"50"}, "cursor": {r.FormValue("cursor")}}, &page)
	var now api.Overview
	_ = c.inside.get(r.Context(), "/overview", url.Values{"minutes": {"1"}, "own": {"true"}}, &now) // the first page says why it is not known
	return view{page: "targets", title: "Targets", data: targetsData{now.Targets.Unresponsive, page.Targets, next(r, "/targets", page.Cursor)}}, err
}

// targetActions are the deeds, and what is said after.
var targetActions = map[string][2]string{"pause": {"Pause this target", "paused"}, "resume": {"Resume this target", "resumed"}, "limit": {"Limit this target", "limited"}}

// changeTarget pauses, resumes or limits a target, after a question with what is in force. The
// question also says that a target is not known, and which were perhaps meant.
func (c *Console) changeTarget(r *http.Request) (view, error) {
	topic, do := strings.TrimSpace(r.FormValue("topic")), r.FormValue("do")
	what, known := targetActions[do]
	if !known {
		return view{}, badForm("do", "is none of pause, resume and limit")
	}
	if topic == "" {
		return view{}, badForm("topic", "is empty: name the target topic, or the origin of callbacks")
	}
	if err := needs(r, access.Operate); err != nil {
		return view{}, err
	}
	ch, err := targetChange(r, do)
	if err != nil {
		return view{}, err
	}
	if confirmed(r) {
		var now api.TargetPolicy
		_, err := c.inside.call(r.Context(), http.MethodPatch, "/targets/"+api.Segment(topic), ch, &now)
		return view{to: "/targets", outcome: &outcome{Text: topic + ": " + what[1] + ". In force: " + inForce(zoneOf(r), now)}}, err
	}
	now, meant, err := c.policy(r.Context(), topic)
	if err != nil {
		return view{}, err
	}
	conf := confirmation{What: what[0], Name: topic, Path: "/targets", Back: "/targets", Danger: do == "pause",
		Fields: []field{{"do", do}, {"topic", topic}, {"until", written(ch.Until)}, {"rate", r.FormValue("rate")}, {"max_in_flight", r.FormValue("max_in_flight")}}}
	if now == nil {
		now, conf.Wrong = &api.TargetPolicy{}, "No task has this target, and nothing was said of it: look at the name."
		for _, m := range meant {
			fields := url.Values{"do": {do}, "topic": {m.Topic}, "until": {written(ch.Until)}, "rate": {r.FormValue("rate")}, "max_in_flight": {r.FormValue("max_in_flight")}}
			conf.Meant = append(conf.Meant, field{m.Topic, "/targets?" + fields.Encode()})
		}
		conf.What += " all the same"
	}
	zone := zoneOf(r)
	becomes := state(zone, now.Paused, now.Until)
	if ch.Paused != nil {
		becomes = state(zone, *ch.Paused, ch.Until.Millis())
	}
	conf.Detail = counted(now.Held) + " tasks are due and kept back."
	conf.Changes = []replaced{
		{"State", state(zone, now.Paused, now.Until), becomes},
		{"Tasks a second", limit(now.Rate), limit(*cmp.Or(ch.Rate, &now.Rate))},
		{"Records in flight", limit(float64(now.MaxInFlight)), limit(float64(*cmp.Or(ch.MaxInFlight, &now.MaxInFlight)))},
	}
	return view{page: "confirm", title: what[0], data: conf}, nil
}

// targetChange leaves out what the form leaves empty: it stays as it is.
func targetChange(r *http.Request, do string) (ch api.TargetChange, err error) {
	if do != "limit" {
		ch.Paused = new(do == "pause")
		if do == "pause" {
			ch.Until, err = instant(r, "until")
		}
		if end := ch.Until.Millis(); err == nil && end > 0 && end <= time.Now().UnixMilli() {
			err = badForm("until", "has passed ("+written(ch.Until)+"): write a later time, such as +2h, or leave it empty")
		}
		return ch, err
	}
	if ch.Rate, err = number(r, "rate"); err != nil {
		return ch, err
	}
	flight, err := number(r, "max_in_flight")
	if flight != nil {
		if *flight != math.Trunc(*flight) {
			return ch, badForm("max_in_flight", "is no whole number")
		}
		ch.MaxInFlight = new(int(*flight))
	}
	if err == nil && ch.Rate == nil && flight == nil {
		err = badForm("rate and max_in_flight", "are both empty: an empty field leaves its limit, 0 takes it away")
	}
	return ch, err
}

// policy returns what is in force for a target. nil: it is not known, and those with a similar name
// are returned.
func (c *Console) policy(ctx context.Context, topic string) (now *api.TargetPolicy, meant []api.TargetPolicy, err error) {
	var found api.Targets
	err = c.inside.get(ctx, "/targets", url.Values{"like": {topic}}, &found)
	if len(found.Targets) == 1 && found.Targets[0].Topic == schemas.TargetName(topic) {
		return &found.Targets[0], nil, err
	}
	return nil, found.Targets, err
}

func state(zone *time.Location, paused bool, until int64) string {
	if paused && until > 0 {
		return "paused until " + clockIn(zone, until)
	}
	if paused {
		return "paused"
	}
	return "open"
}

func inForce(zone *time.Location, p api.TargetPolicy) string {
	return state(zone, p.Paused, p.Until) + ", tasks a second: " + limit(p.Rate) + ", records in flight: " + limit(float64(p.MaxInFlight))
}

func limit(n float64) string {
	if n == 0 {
		return "no limit"
	}
	return strconv.FormatFloat(n, 'f', -1, 64)
}

// number reads a field. nil: it is empty.
func number(r *http.Request, name string) (*float64, error) {
	text := strings.TrimSpace(r.FormValue(name))
	if text == "" {
		return nil, nil
	}
	n, err := strconv.ParseFloat(text, 64)
	if err != nil || math.IsInf(n, 0) || math.IsNaN(n) {
		return nil, badForm(name, "is no number: write one, 0 for no limit, or leave it empty to leave the limit as it is")
	}
	return &n, nil
}
