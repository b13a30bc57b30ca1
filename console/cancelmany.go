package console

import (
	"cmp"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"time"

	"github.com/notyet/notyet/api"
	"github.com/notyet/notyet/internal/access"
)

// cancelFilter selects tasks to cancel.
type cancelFilter struct{ api.CancelMany }

// fields are what is set, each with its name in a form.
func (f cancelFilter) fields() (out []field) {
	for _, x := range []field{{"topic", f.Topic}, {"tag", f.Tag}, {"q", f.IDPrefix}, {"from", written(f.From)}, {"to", written(f.To)}} {
		if x.Value != "" {
			out = append(out, x)
		}
	}
	return out
}

func (f cancelFilter) said(zone *time.Location) string {
	var names []string
	for _, x := range f.fields() {
		names = append(names, cmp.Or(map[string]string{"q": "ids that begin with", "from": "due from", "to": "due before"}[x.Name], x.Name)+" "+x.said(zone))
	}
	return cmp.Or(strings.Join(names, ", "), "all tasks")
}

// page shows the tasks.
func (f cancelFilter) page() string {
	q := url.Values{}
	for _, x := range f.fields() {
		q.Set(x.Name, x.Value)
	}
	return "/find?" + q.Encode()
}

// changeMany changes the tasks of a filter, or those that are ticked.
func (c *Console) changeMany(r *http.Request) (view, error) {
	switch do := r.FormValue("do"); do {
	case "cancel":
		return c.cancelMany(r)
	case "cancel-ticked", "move-ticked":
		return c.changeTicked(r, do)
	}
	return view{}, badForm("do", "is none of cancel, cancel-ticked and move-ticked")
}

// cancelMany counts the tasks of a filter, and then has them cancelled.
func (c *Console) cancelMany(r *http.Request) (view, error) {
	if err := needs(r, access.Operate); err != nil {
		return view{}, err
	}
	trim := func(name string) string { return strings.TrimSpace(r.FormValue(name)) }
	filter := cancelFilter{api.CancelMany{Topic: trim("topic"), IDPrefix: trim("q"), Tag: trim("tag")}}
	var err error
	if filter.From, err = instant(r, "from"); err != nil {
		return view{}, err
	}
	if filter.To, err = instant(r, "to"); err != nil {
		return view{}, err
	}
	if filter.CancelMany == (api.CancelMany{}) {
		return view{}, badForm("topic, tag, id, from and to", "are empty: name the tasks that are meant")
	}
	var done api.CancelledMany
	dry := filter.CancelMany
	dry.DryRun = true
	if _, err := c.inside.call(r.Context(), http.MethodPost, "/tasks/cancel-many", dry, &done); err != nil {
		return view{}, err
	}
	number := toType(done.Matched, done.Cursor != "", false)
	const agreed = "agreed" // how many the question was about: more come all the time, but not twice as many
	grown := done.Matched > 2*whole(r, agreed) || done.Cursor != "" && r.PostFormValue("partly") == ""
	if confirmed(r) && !grown && (number == "" || typed(r)) {
		return c.begin(r, "/tasks/cancel-many", filter.CancelMany)
	}
	const what = "Cancel these tasks"
	wrong := ""
	if confirmed(r) && grown {
		wrong = "There are many more of them now."
	}
	return view{page: "confirm", title: what, data: confirmation{What: what, Keep: "Keep them", Name: filter.said(zoneOf(r)), Path: "/find", Back: filter.page(), Danger: true,
		Fields: append([]field{{"do", "cancel"}, {agreed, strconv.FormatInt(done.Matched, 10)}, {"partly", done.Cursor}}, filter.fields()...), Wrong: wrong, Detail: orMore(done.Matched, done.Cursor) + " tasks now.", Many: number, Mistyped: confirmed(r) && number != "" && !typed(r)}}, nil
}
