package console

import (
	"net/http"
	"net/url"
	"strconv"
	"strings"

	"github.com/notyet/notyet/api"
	"github.com/notyet/notyet/internal/access"
)

// cancelMany counts the tasks of a filter, and then cancels as many at a time as one request of the
// API does.
func (c *Console) cancelMany(r *http.Request) (view, error) {
	if r.FormValue("do") != "cancel" {
		return view{}, badForm("do", "is not cancel")
	}
	if err := needs(r, access.Operate); err != nil {
		return view{}, err
	}
	trim := func(name string) string { return strings.TrimSpace(r.FormValue(name)) }
	filter := api.CancelMany{Topic: trim("topic"), IDPrefix: trim("q"), Tag: trim("tag")}
	var err error
	if filter.From, err = instant(r, "from"); err != nil {
		return view{}, err
	}
	if filter.To, err = instant(r, "to"); err != nil {
		return view{}, err
	}
	if filter == (api.CancelMany{}) {
		return view{}, badForm("topic, tag, id, from and to", "are empty: name the tasks that are meant")
	}
	fields := []field{{"do", "cancel"}}
	var names []string
	for _, f := range [][3]string{{"topic", "topic", filter.Topic}, {"tag", "tag", filter.Tag}, {"q", "ids that begin with", filter.IDPrefix}, {"from", "due from", written(filter.From)}, {"to", "due before", written(filter.To)}} {
		if f[2] != "" {
			fields, names = append(fields, field{f[0], f[2]}), append(names, f[1]+" "+f[2])
		}
	}
	back := url.Values{}
	for _, f := range fields[1:] {
		back.Set(f.Name, f.Value)
	}
	what, name, found := "Cancel these tasks", strings.Join(names, ", "), "/find?"+back.Encode()
	var done api.CancelledMany
	if !confirmed(r) {
		filter.DryRun = true
		if _, err := c.inside.call(r.Context(), http.MethodPost, "/tasks/cancel-many", filter, &done); err != nil {
			return view{}, err
		}
		number := digits(done.Matched)
		if done.Cursor != "" {
			number += " or more"
		}
		return view{page: "confirm", title: what, data: confirmation{What: what, Keep: "Keep them", Name: name, Path: "/find", Back: found, Danger: true,
			Fields: append(fields, field{"total", strconv.FormatInt(done.Matched, 10)}), Detail: number + " tasks now."}}, nil
	}
	filter.Cursor = r.FormValue("cursor")
	if _, err := c.inside.call(r.Context(), http.MethodPost, "/tasks/cancel-many", filter, &done); err != nil {
		return view{}, err
	}
	cancelled, late, total := whole(r, "done")+done.Cancelled, whole(r, "too_late")+done.TooLate, whole(r, "total")
	if done.Cursor == "" {
		return view{to: found, outcome: &outcome{Text: "Cancelled " + digits(cancelled) + " · too late " + digits(late), Bad: late > 0}}, nil
	}
	n := func(i int64) string { return strconv.FormatInt(i, 10) }
	again := append(fields, field{"confirmed", "yes"}, field{"total", n(total)}, field{"done", n(cancelled)}, field{"too_late", n(late)}, field{"cursor", done.Cursor})
	return newProgressBar(progressBar{What: what, Name: name, Path: "/find", Stop: found, Done: cancelled + late, Total: max(total, cancelled+late), Again: again}), nil
}
