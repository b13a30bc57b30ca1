package console

import (
	"net/http"
	"strconv"
	"strings"

	"github.com/notyet/notyet/api"
	"github.com/notyet/notyet/internal/access"
)

func (c *Console) targets(r *http.Request) (view, error) {
	if r.FormValue("do") != "" {
		return c.changeTarget(r)
	}
	var d api.Targets
	err := c.inside.get(r.Context(), "/targets", nil, &d)
	return view{page: "targets", title: "Targets", data: d}, err
}

var targetActions = map[string]string{"pause": "Pause this target", "resume": "Resume this target", "limit": "Limit this target"}

var targetDone = map[string]string{"pause": "paused", "resume": "resumed", "limit": "limited"}

// changeTarget pauses, resumes or limits a target, after a confirmation with the name.
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
	paused := do == "pause"
	ch, detail := api.TargetChange{Paused: &paused}, ""
	if do == "limit" {
		ch.Paused = nil
		rate, err := number(r, "rate")
		if err != nil {
			return view{}, err
		}
		flight, err := number(r, "max_in_flight")
		if err != nil {
			return view{}, err
		}
		whole := int(flight)
		if float64(whole) != flight {
			return view{}, badForm("max_in_flight", "is no whole number")
		}
		ch.Rate, ch.MaxInFlight = &rate, &whole
		detail = "Rate: " + limit(rate, "tasks a second") + ". In flight: " + limit(flight, "records") + "."
	}
	if !confirmed(r) {
		return view{page: "confirm", title: what, data: confirmation{What: what, Name: topic, Path: "/targets", Back: "/targets", Danger: paused, Detail: detail,
			Fields: []field{{"do", do}, {"topic", topic}, {"rate", r.FormValue("rate")}, {"max_in_flight", r.FormValue("max_in_flight")}}}}, nil
	}
	_, err := c.inside.call(r.Context(), http.MethodPatch, "/targets/"+api.Segment(topic), ch, nil)
	return view{to: "/targets", outcome: &outcome{Text: topic + ": " + targetDone[do]}}, err
}

func limit(n float64, unit string) string {
	if n == 0 {
		return "no limit"
	}
	return strconv.FormatFloat(n, 'f', -1, 64) + " " + unit
}

// number reads a field; empty is 0.
func number(r *http.Request, name string) (float64, error) {
	text := strings.TrimSpace(r.FormValue(name))
	if text == "" {
		return 0, nil
	}
	n, err := strconv.ParseFloat(text, 64)
	if err != nil {
		return 0, badForm(name, "is no number: write one, or leave it empty for no limit")
	}
	return n, nil
}
