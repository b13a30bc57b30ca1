package console

import (
	"net/http"
	"strconv"
	"strings"

	"github.com/notyet/notyet/api"
	"github.com/notyet/notyet/deadletter"
	"github.com/notyet/notyet/internal/access"
	"github.com/notyet/notyet/schemas"
)

// edits are the parts of a letter that its form shows. nil: a form would not give back the letter's
// as it is, so it stays.
type edits struct{ Topic, Key, Value *string }

// newEdits returns nil where a letter cannot be replayed.
func newEdits(l deadletter.Letter) *edits {
	if l.Content == nil || l.ReplayedAt > 0 || l.Kind == schemas.KindRejected {
		return nil
	}
	text := func(s *string, encoded, unfit string) *string {
		switch {
		case encoded != "" || s != nil && (len(*s) > shownBytes || strings.ContainsAny(*s, unfit) || !isText([]byte(*s))):
			return nil
		case s == nil:
			return new("")
		}
		return s
	}
	e := &edits{Key: text(l.Key, l.KeyBase64, "\r\n"), Value: text(l.Value, l.ValueBase64, "\r")}
	if !strings.Contains(l.Topic, "://") {
		e.Topic = &l.Topic
	}
	return e
}

// lines undoes what a browser does to a text of several lines: it ends each with CR and LF.
func lines(text string) string { return strings.ReplaceAll(text, "\r\n", "\n") }

// changed is what a form has in another way than the letter.
func (e *edits) changed(r *http.Request) (out api.ReplayEdit, changes []replaced, err error) {
	for _, part := range []struct {
		name string
		was  *string
		set  func(string)
	}{
		{"topic", e.Topic, func(s string) { out.Topic = strings.TrimSpace(s) }},
		{"key", e.Key, func(s string) { out.Key = api.Text{Set: true, Text: &s} }},
		{"value", e.Value, func(s string) { out.Value = api.Text{Set: true, Text: &s} }},
	} {
		if part.was == nil || !r.Form.Has(part.name) {
			continue
		}
		text := lines(r.FormValue(part.name))
		if part.name == "topic" && strings.TrimSpace(text) == "" {
			return out, nil, badForm("topic", "is empty: name a target topic")
		}
		if text != *part.was {
			part.set(text)
			changes = append(changes, replaced{part.name, brief(*part.was, 200), brief(text, 200)})
		}
	}
	return out, changes, nil
}

// editLetter replays a letter with what its form has, after a question with what that replaces.
func (c *Console) editLetter(r *http.Request) (view, error) {
	if err := needs(r, access.Operate); err != nil {
		return view{}, err
	}
	id, err := strconv.ParseInt(r.FormValue("id"), 10, 64)
	if err != nil {
		return view{}, badForm("id", "is no number of a dead letter")
	}
	path := "/deadletters/" + strconv.FormatInt(id, 10)
	var l deadletter.Letter
	if err := c.inside.get(r.Context(), path, nil, &l); err != nil {
		return view{}, err
	}
	e := newEdits(l)
	if e == nil {
		return view{}, badForm("id", "names a dead letter that was replayed, or a rejected request: nothing can be replayed")
	}
	edit, changes, err := e.changed(r)
	if err != nil {
		return view{}, err
	}
	if len(changes) == 0 {
		return view{}, badForm("topic, key and value", "are all as they were: change one of them, or replay the letter as it is")
	}
	back := "/deadletter?id=" + strconv.FormatInt(id, 10)
	if !confirmed(r) {
		fields := []field{{"id", strconv.FormatInt(id, 10)}}
		for _, name := range []string{"topic", "key", "value"} {
			if r.Form.Has(name) {
				fields = append(fields, field{name, r.FormValue(name)})
			}
		}
		return view{page: "confirm", title: "Replay this letter", data: confirmation{What: "Replay it so", Name: "dead letter " + strconv.FormatInt(id, 10), Path: "/deadletter", Back: back, Fields: fields, Changes: changes}}, nil
	}
	var page deadletter.Page
	if _, err := c.inside.call(r.Context(), http.MethodPost, path+"/replay", edit, &page); err != nil {
		return view{}, err
	}
	for _, one := range page.Letters {
		if one.Skipped != "" {
			return view{to: back, outcome: &outcome{Text: "Not replayed: " + one.Skipped, Bad: true}}, nil
		}
		back = taskPath(one.Topic, one.TaskID)
	}
	return view{to: back, outcome: &outcome{Text: "Replayed, with another " + changedNames(changes) + "."}}, nil
}

func changedNames(changes []replaced) string {
	var names []string
	for _, ch := range changes {
		names = append(names, ch.What)
	}
	return strings.Join(names, ", ")
}
