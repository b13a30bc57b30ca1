package console

import (
	"cmp"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"time"

	"github.com/notyet/notyet/api"
	"github.com/notyet/notyet/deadletter"
	"github.com/notyet/notyet/internal/access"
)

var letterKinds = []string{"dead", "undeliverable", "expired", "rejected", "callback"}

type lettersData struct {
	Filter  letterFilter
	Kinds   []string
	Letters []deadletter.Letter
	Next    string
	Grouped letterGroups // of the first page
}

type letterFilter struct{ api.LetterFilter }

func readFilter(r *http.Request) (f letterFilter, err error) {
	trim := func(name string) string { return strings.TrimSpace(r.FormValue(name)) }
	f.LetterFilter = api.LetterFilter{Kind: trim("kind"), Topic: trim("topic"), TaskID: trim("task_id"), Tag: trim("tag"), Reason: trim("reason"), Replayed: r.FormValue("replayed") != ""}
	for _, text := range strings.FieldsFunc(strings.Join(r.Form["ids"], ","), func(c rune) bool { return c == ',' }) {
		id, err := strconv.ParseInt(text, 10, 64)
		if err != nil {
			return f, badForm("ids", "has "+text+", which is no number of a dead letter")
		}
		f.IDs = append(f.IDs, id)
	}
	if f.Since, err = instant(r, "since"); err == nil {
		f.Until, err = instant(r, "until")
	}
	return f, err
}

// written is an instant as a form has it.
func written(at api.Instant) string {
	if at == (api.Instant{}) {
		return ""
	}
	return time.UnixMilli(at.Millis()).UTC().Format(time.RFC3339Nano)
}

// Fields are what is set, each with its name in a form and in the API.
func (f letterFilter) Fields() (out []field) {
	var ids []string
	for _, id := range f.IDs {
		ids = append(ids, strconv.FormatInt(id, 10))
	}
	for _, x := range []field{{"ids", strings.Join(ids, ",")}, {"kind", f.Kind}, {"topic", f.Topic}, {"task_id", f.TaskID}, {"tag", f.Tag}, {"reason", f.Reason}, {"since", written(f.Since)}, {"until", written(f.Until)}} {
		if x.Value != "" {
			out = append(out, x)
		}
	}
	if f.Replayed {
		out = append(out, field{"replayed", "true"})
	}
	return out
}

func (f letterFilter) query() url.Values {
	q := url.Values{}
	for _, x := range f.Fields() {
		q.Add(x.Name, x.Value)
	}
	return q
}

// page shows the letters.
func (f letterFilter) page() string {
	if len(f.IDs) == 1 {
		return "/deadletter?id=" + strconv.FormatInt(f.IDs[0], 10)
	}
	return "/deadletters?" + f.query().Encode()
}

func (f letterFilter) all() bool {
	f.Replayed = false
	return len(f.Fields()) == 0
}

func (f letterFilter) said(zone *time.Location) string {
	if f.all() {
		return "all dead letters"
	}
	f.Replayed = false
	parts := []string{}
	for _, x := range f.Fields() {
		parts = append(parts, cmp.Or(map[string]string{"task_id": "task", "ids": "number"}[x.Name], x.Name)+" "+x.said(zone))
	}
	return strings.Join(parts, ", ")
}

func (c *Console) letters(r *http.Request) (view, error) {
	if r.FormValue("do") != "" {
		return c.changeLetters(r)
	}
	filter, err := readFilter(r)
	if err != nil {
		return view{}, err
	}
	d := &lettersData{Filter: filter, Kinds: letterKinds}
	q := d.Filter.query()
	q.Set("limit", "50")
	q.Set("newest", "true")
	set(q, "cursor", r.FormValue("cursor"))
	var page api.Letters
	err = c.inside.get(r.Context(), "/deadletters", q, &page)
	d.Letters, d.Next = page.Letters.Letters, nextPage("/deadletters", page.Cursor, d.Filter.query())
	if err == nil && r.FormValue("cursor") == "" && len(d.Letters) > 1 && len(filter.IDs) == 0 {
		d.Grouped, _ = c.group(r.Context(), filter) // the letters are shown without
	}
	return view{page: "deadletters", title: "Dead letters", data: d}, err
}

type letterData struct {
	Letter  deadletter.Letter
	Content *content
	Edits   *edits
}

func (c *Console) letter(r *http.Request) (view, error) {
	d := letterData{}
	id, err := strconv.ParseInt(r.FormValue("id"), 10, 64)
	if err != nil {
		return view{}, badForm("id", "is no number of a dead letter")
	}
	err = c.inside.get(r.Context(), "/deadletters/"+strconv.FormatInt(id, 10), nil, &d.Letter)
	d.Content, d.Edits = newContent(d.Letter.Content), newEdits(d.Letter)
	return view{page: "deadletter", title: "Dead letter " + strconv.FormatInt(id, 10), data: d}, err
}

// changeLetters counts the letters of a filter, and then has them replayed or deleted.
func (c *Console) changeLetters(r *http.Request) (view, error) {
	filter, err := readFilter(r)
	if err != nil {
		return view{}, err
	}
	if r.FormValue("only") == "ticked" && len(filter.IDs) == 0 {
		return view{}, badForm("ids", "are empty: tick the letters that are meant")
	}
	do := r.FormValue("do")
	what, keep, role := "Replay", "", access.Operate
	switch do {
	case "replay":
	case "purge":
		what, keep, role = "Delete for good", "Keep them", access.Admin
	default:
		return view{}, badForm("do", "is none of replay and purge")
	}
	if err := needs(r, role); err != nil {
		return view{}, err
	}
	const asked = "asked" // when the question was shown: nobody has agreed to letters of later deaths
	count := func(f letterFilter) (n api.Count, number string, err error) {
		err = c.inside.get(r.Context(), "/deadletters/count", f.query(), &n)
		return n, toType(n.Count, n.Cursor != "", do == "purge"), err
	}
	if confirmed(r) {
		agreed := filter
		if at := whole(r, asked); at > 0 && (filter.Until == api.Instant{} || at < filter.Until.Millis()) {
			agreed.Until = api.At(at)
		}
		if _, number, err := count(agreed); err != nil {
			return view{}, err
		} else if number == "" || typed(r) {
			return c.begin(r, "/deadletters/"+do, struct {
				api.LetterFilter
				All bool `json:"all,omitempty"`
			}{agreed.LetterFilter, agreed.all()})
		}
	}
	n, number, err := count(filter)
	if err != nil {
		return view{}, err
	}
	fields := []field{{"do", do}, {asked, strconv.FormatInt(n.At, 10)}}
	return view{page: "confirm", title: what, data: confirmation{What: what, Keep: keep, Name: filter.said(zoneOf(r)), Path: "/deadletters", Back: filter.page(),
		Danger: do == "purge", Fields: append(fields, filter.Fields()...), Detail: orMore(n.Count, n.Cursor) + " dead letters now.", Many: number, Mistyped: confirmed(r)}}, nil
}

// orMore is a count that may have had no time for all.
func orMore(n int64, cursor string) string {
	if cursor != "" {
		return digits(n) + " or more"
	}
	return digits(n)
}

func whole(r *http.Request, name string) int64 {
	n, err := strconv.ParseInt(r.FormValue(name), 10, 64)
	if err != nil || n < 0 {
		return 0
	}
	return n
}
