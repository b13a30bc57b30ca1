package console

import (
	"cmp"
	"context"
	"encoding/json"
	"maps"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/notyet/notyet/api"
	"github.com/notyet/notyet/internal/access"
)

// operation is one that the services make, or have made.
type operation struct {
	api.Operation
	Stops bool // the caller may stop it
}

func newOperation(r *http.Request, o api.Operation) operation {
	role := access.Operate
	if o.What == "purge" {
		role = access.Admin
	}
	return operation{o, o.Running() && access.From(r.Context()).May(role)}
}

// Deed is the button that asked for it.
func (o operation) Deed() string {
	return map[string]string{"cancel-many": "Cancel these tasks", "replay": "Replay", "purge": "Delete for good", "backfill": timerActions["backfill"]}[o.What]
}

// Outcome is the result so far, in a line.
func (o operation) Outcome() string {
	var parts []string
	for _, f := range o.Figures() {
		parts = append(parts, f.Name+" "+digits(f.N))
	}
	text := strings.Join(parts, " · ")
	return strings.ToUpper(text[:min(1, len(text))]) + text[min(1, len(text)):]
}

// Path is of the operation's page.
func (o operation) Path() string { return "/operation?id=" + strconv.FormatInt(o.ID, 10) }

type operationsData struct {
	Operations []operation
	Next       string
}

// operations lists them, the latest first.
func (c *Console) operations(r *http.Request) (view, error) {
	d := operationsData{}
	var page api.Operations
	err := c.inside.get(r.Context(), "/operations", url.Values{"limit": {"50"}, "cursor": {r.FormValue("cursor")}}, &page)
	for _, o := range page.Operations {
		d.Operations = append(d.Operations, newOperation(r, o))
	}
	d.Next = nextPage("/operations", page.Cursor, nil)
	return view{page: "operations", title: "Operations", data: d}, err
}

type operationData struct {
	operation
	Name  string // what it is about
	Back  string // where its tasks or letters are
	Place string // the text of that link
	Skips []string
	Again int64 // letters that were replayed and died again

	Uncounted bool // Again is not known
	Watched   bool // more may die again
	Good      bool // all that was asked for is done
}

// operation shows how far one has come, and what became of it.
func (c *Console) operation(r *http.Request) (view, error) {
	path, err := operationAPI(r)
	if err != nil {
		return view{}, err
	}
	var o api.Operation
	if err := c.inside.get(r.Context(), path, nil, &o); err != nil {
		return view{}, err
	}
	d := operationData{operation: newOperation(r, o)}
	skips := o.Skips()
	told := int64(0)
	for _, reason := range slices.Sorted(maps.Keys(skips)) {
		d.Skips, told = append(d.Skips, "skipped "+digits(skips[reason])+": "+reason), told+skips[reason]
	}
	for _, f := range o.Figures() {
		if f.Name == "skipped" && f.N > told { // the result has the last letters alone
			d.Skips = append(d.Skips, "skipped "+digits(f.N-told)+" before: why is not known any more")
		}
	}
	zone := zoneOf(r)
	switch o.What {
	case "backfill":
		var b api.Backfill
		_ = json.Unmarshal(o.Request, &b)
		d.Name, d.Back, d.Place = o.Topic+" "+o.Timer+", runs from "+clockIn(zone, b.From.Millis())+" to "+clockIn(zone, b.To.Millis()), timerPath(o.Topic, o.Timer), "Its timer"
	case "cancel-many":
		f := cancelFilter{}
		_ = json.Unmarshal(o.Request, &f.CancelMany) // it is the API's
		d.Name, d.Back, d.Place = f.said(zone), f.page(), "Its tasks"
	default:
		f := letterFilter{}
		_ = json.Unmarshal(o.Request, &f.LetterFilter)
		if f.Until.Millis() >= o.At-time.Minute.Milliseconds() { // the API's own bound: letters of later deaths are left out
			f.Until = api.Instant{}
		}
		d.Name, d.Back, d.Place = f.said(zone), f.page(), "Dead letters"
		if o.What == "replay" { // letters of tasks that died again are younger
			f.Until = api.Instant{}
			d.Back = f.page()
		}
		d.Again, err = c.diedAgain(r.Context(), o, f)
		d.Uncounted = err != nil // there may be too many letters since
	}
	d.Good, d.Watched = d.isGood(), o.Running() || o.Changed >= time.Now().Add(-watchedFor).UnixMilli()
	return view{page: "operation", still: !d.Watched, title: "Operation " + strconv.FormatInt(o.ID, 10), data: d}, nil
}

// isGood says that nothing was left out.
func (d *operationData) isGood() bool {
	if d.State != "done" || d.Again > 0 || d.Uncounted {
		return false
	}
	for i, f := range d.Figures() {
		switch {
		case f.Name == "too late" && f.N > 0, f.Name == "skipped" && f.N > 0, f.Name == "forgotten" && f.N > 0, f.Name == "replayed" && i == 0 && f.N == 0:
			return false
		}
	}
	return true
}

// diedAgain counts the letters of an ended replay that are dead letters again.
func (c *Console) diedAgain(ctx context.Context, o api.Operation, f letterFilter) (int64, error) {
	var result api.ReplayedMany
	if o.What != "replay" || o.Running() || json.Unmarshal(o.Result, &result) != nil || result.Replayed == 0 {
		return 0, nil
	}
	q := f.query()
	q.Set("died_again_since", strconv.FormatInt(o.At, 10))
	q.Set("died_again_until", strconv.FormatInt(o.Changed+stepUnderWay.Milliseconds(), 10))
	var n api.Count
	err := c.inside.get(ctx, "/deadletters/count", q, &n)
	return n.Count, err
}

// stopOperation stops one at once: what is left can be asked for again.
func (c *Console) stopOperation(r *http.Request) (view, error) {
	path, err := operationAPI(r)
	if err == nil && r.FormValue("do") != "stop" {
		err = badForm("do", "is not stop")
	}
	if err = cmp.Or(err, needs(r, access.Operate)); err != nil {
		return view{}, err
	}
	status, err := c.inside.call(r.Context(), http.MethodDelete, path, nil, nil)
	said := &outcome{Text: "Stopped. What is done stays."}
	if status == http.StatusConflict { // it ended while somebody looked at it
		said, err = &outcome{Text: "Not stopped: " + asProblem(err).Detail, Bad: true}, nil
	}
	return view{to: "/operation?id=" + strings.TrimPrefix(path, "/operations/"), outcome: said}, err
}

func operationAPI(r *http.Request) (string, error) {
	id, err := strconv.ParseInt(r.FormValue("id"), 10, 64)
	if err != nil {
		return "", badForm("id", "is no number of an operation")
	}
	return "/operations/" + strconv.FormatInt(id, 10), nil
}

const (
	// stepUnderWay is how long the step of an operation that is stopped may go on.
	stepUnderWay = 2 * time.Second
	// watchedFor is for how long the page of an ended operation is refreshed: its tasks may die
	// again, and each look counts them anew.
	watchedFor = 10 * time.Minute
	// settleFor is how long a form waits for its operation, so that the page of a small one says at
	// once what became of it.
	settleFor   = 2 * time.Second
	settleEvery = 100 * time.Millisecond
)

// begin asks for an operation, and leads to its page.
func (c *Console) begin(r *http.Request, path string, request any) (view, error) {
	var o api.Operation
	if _, err := c.inside.call(r.Context(), http.MethodPost, path+"?async=true", request, &o); err != nil {
		return view{}, err
	}
	v := view{to: operation{Operation: o}.Path()}
	for ends := time.Now().Add(settleFor); o.Running() && time.Now().Before(ends); {
		select {
		case <-time.After(settleEvery):
		case <-r.Context().Done():
			return v, nil
		}
		if c.inside.get(r.Context(), "/operations/"+strconv.FormatInt(o.ID, 10), nil, &o) != nil {
			return v, nil // its page says why
		}
	}
	return v, nil
}
