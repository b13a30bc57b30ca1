package console

import (
	"cmp"
	"maps"
	"net/http"
	"net/url"
	"slices"
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

// instant reads a field: a time as parseWhen does, or how long ago it was.
func instant(r *http.Request, name string) (at api.Instant, err error) {
	text := strings.TrimSpace(r.FormValue(name))
	if text == "" {
		return at, nil
	}
	if ago, err := time.ParseDuration(text); err == nil && ago > 0 {
		return api.At(time.Now().Add(-ago).UnixMilli()), nil
	}
	when, err := parseWhen(name, text)
	if err == nil {
		err = at.UnmarshalText([]byte(when))
	}
	return at, err
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

func (f letterFilter) String() string {
	if f.all() {
		return "all dead letters"
	}
	f.Replayed = false
	parts := []string{}
	for _, x := range f.Fields() {
		parts = append(parts, cmp.Or(map[string]string{"task_id": "task", "ids": "number"}[x.Name], x.Name)+" "+x.Value)
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

// progress is how far a replay or a purge has come. Each request does one page; the script, or the
// operator, asks for the next.
type progress struct {
	What, Name  string
	Do          string
	Filter      letterFilter
	Total, Done int64
	Skipped     skipped
	At          int64 // of the first page, Unix ms
	After, UpTo int64
	Last        bool
}

// skipped is how many letters were not replayed, by the reason.
type skipped map[string]int64

// moreReasons stands for reasons beyond mostReasons.
const (
	mostReasons = 5
	moreReasons = "other reasons"
)

func readSkipped(r *http.Request) skipped {
	s := skipped{}
	for _, text := range r.Form["skipped"] {
		if n, reason, ok := strings.Cut(text, " "); ok {
			count, _ := strconv.ParseInt(n, 10, 64)
			s.add(reason, max(count, 0))
		}
	}
	return s
}

func (s skipped) add(reason string, n int64) {
	if _, known := s[reason]; !known && len(s) >= mostReasons {
		reason = moreReasons
	}
	s[reason] += n
}

// Sum is the number of letters.
func (s skipped) Sum() (n int64) {
	for _, one := range s {
		n += one
	}
	return n
}

func (s skipped) texts() (out []string) {
	for reason, n := range s {
		out = append(out, strconv.FormatInt(n, 10)+" "+reason)
	}
	return out
}

// why says why letters were not replayed; nil: all were.
func (s skipped) why() *outcome {
	if s.Sum() == 0 {
		return nil
	}
	var lines []string
	for _, reason := range slices.Sorted(maps.Keys(s)) {
		lines = append(lines, "skipped "+digits(s[reason])+": "+reason)
	}
	return &outcome{Text: strings.Join(lines, " · "), Bad: true}
}

// Outcome is the path of the page that says what became of a replay. It has numbers alone: a link
// cannot make the page say something.
func (p progress) Outcome() string {
	q := p.Filter.query()
	for name, n := range map[string]int64{"done": p.Done, "total": p.Total, "at": p.At, "skipped": p.Skipped.Sum()} {
		q.Set(name, strconv.FormatInt(n, 10))
	}
	if !p.Last {
		q.Set("stopped", "on")
	}
	return "/replayed?" + q.Encode()
}

type replayedData struct {
	progress
	Missed  int64 // letters that were not replayed
	Stopped bool
	Again   int64
	Letters string // where the letters are
}

// replayed says what became of a replay: how much was replayed, how much was not, and how much has
// died again since.
func (c *Console) replayed(r *http.Request) (view, error) {
	filter, err := readFilter(r)
	if err != nil {
		return view{}, err
	}
	d := replayedData{progress: progress{Filter: filter, Total: whole(r, "total"), Done: whole(r, "done"), At: whole(r, "at")}, Missed: whole(r, "skipped"), Stopped: r.FormValue("stopped") != ""}
	d.Name, d.Letters = d.Filter.String(), "/deadletters?"+d.Filter.query().Encode()
	if d.Done = max(d.Done-d.Missed, 0); d.Done == 0 || d.At == 0 {
		return view{page: "replayed", title: "Replay", data: d}, nil
	}
	q := d.Filter.query()
	q.Set("died_again_since", strconv.FormatInt(d.At, 10))
	var n api.Count
	err = c.inside.get(r.Context(), "/deadletters/count", q, &n)
	d.Again = n.Count
	return view{page: "replayed", title: "Replay", data: d}, err
}

// changeLetters counts the letters of a filter, and then replays or purges a page at a time.
func (c *Console) changeLetters(r *http.Request) (view, error) {
	filter, err := readFilter(r)
	if err != nil {
		return view{}, err
	}
	if r.FormValue("only") == "ticked" && len(filter.IDs) == 0 {
		return view{}, badForm("ids", "are empty: tick the letters that are meant")
	}
	p := progress{Do: r.FormValue("do"), Filter: filter}
	switch p.Do {
	case "replay":
		p.What = "Replay"
	case "purge":
		p.What = "Delete for good"
	default:
		return view{}, badForm("do", "is none of replay and purge")
	}
	if err := needs(r, map[string]access.Role{"replay": access.Operate, "purge": access.Admin}[p.Do]); err != nil {
		return view{}, err
	}
	p.Name = p.Filter.String()
	p.Total, p.Done, p.After, p.UpTo = whole(r, "total"), whole(r, "done"), whole(r, "after"), whole(r, "up_to")
	p.At, p.Skipped = whole(r, "at"), readSkipped(r)
	if !confirmed(r) {
		var n api.Count
		if err := c.inside.get(r.Context(), "/deadletters/count", p.Filter.query(), &n); err != nil {
			return view{}, err
		}
		fields := append(p.fields(), field{"total", strconv.FormatInt(n.Count, 10)})
		return view{page: "confirm", title: p.What, data: confirmation{What: p.What, Name: p.Name, Path: "/deadletters", Back: p.Filter.page(),
			Danger: p.Do == "purge", Fields: fields, Detail: digits(n.Count) + " dead letters now."}}, nil
	}
	if err := c.letterPage(r, &p); err != nil {
		return view{}, err
	}
	switch {
	case p.Last && p.Do == "replay":
		return view{to: p.Outcome(), outcome: p.Skipped.why()}, nil
	case p.Last:
		return view{to: "/deadletters?" + p.Filter.query().Encode(), outcome: &outcome{Text: "Deleted " + digits(p.Done) + " dead letters."}}, nil
	}
	stop := "/deadletters"
	if p.Do == "replay" {
		stop = p.Outcome()
	}
	return newProgressBar(progressBar{What: p.What, Name: p.Name, Path: "/deadletters", Stop: stop, Done: p.Done, Total: p.Total, Again: p.again()}), nil
}

// letterPage does one page, and says in p where the next begins.
func (c *Console) letterPage(r *http.Request, p *progress) error {
	var page struct {
		deadletter.Page       // a replay's; a purge's too, without letters
		Deleted         int64 `json:"deleted"`
	}
	replay := api.ReplayRequest{LetterFilter: p.Filter.LetterFilter, All: p.Filter.all(), After: p.After, UpTo: p.UpTo}
	var request any = replay
	if p.Do == "purge" {
		request = api.PurgeRequest(replay)
	}
	if _, err := c.inside.call(r.Context(), http.MethodPost, "/deadletters/"+p.Do, request, &page); err != nil {
		return err
	}
	p.Done += int64(len(page.Letters)) + page.Deleted
	for _, l := range page.Letters {
		if l.Skipped != "" {
			p.Skipped.add(l.Skipped, 1)
		}
	}
	p.At = cmp.Or(p.At, page.At)
	p.After, p.UpTo, p.Last = page.Next, page.UpTo, page.Next == 0
	return nil
}

// fields are the filter's fields for the next request.
func (p progress) fields() []field {
	return append([]field{{"do", p.Do}}, p.Filter.Fields()...)
}

// again are the fields of the continuing form.
func (p progress) again() []field {
	n := func(i int64) string { return strconv.FormatInt(i, 10) }
	out := append(p.fields(), field{"confirmed", "yes"}, field{"total", n(p.Total)}, field{"done", n(p.Done)}, field{"after", n(p.After)}, field{"up_to", n(p.UpTo)}, field{"at", n(p.At)})
	for _, text := range p.Skipped.texts() {
		out = append(out, field{"skipped", text})
	}
	return out
}

func whole(r *http.Request, name string) int64 {
	n, err := strconv.ParseInt(r.FormValue(name), 10, 64)
	if err != nil || n < 0 {
		return 0
	}
	return n
}
