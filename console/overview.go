package console

import (
	"cmp"
	"context"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"time"

	"github.com/notyet/notyet/api"
)

// overviewData is the first page. An unreadable part says why, and the others are shown.
type overviewData struct {
	Topic, Tag string
	Reach      string
	Reaches    []reach
	River      *river
	RiverErr   string // why it is not known what comes
	Counted    int64  // Unix ms; 0: all
	Lanes      lanes
	LanesErr   string
	All        api.Overview
	AllErr     string
	Cluster    api.Cluster
	ClusterErr string
	Free       int // slots without an owner that lives
	Lag        int64
	LagMissing int // partitions of which it is not known
}

// Knows tells whether a part of the overview was read.
func (d *overviewData) Knows(what string) bool {
	return d.AllErr == "" && !slices.ContainsFunc(d.All.Missing, func(m api.Missing) bool { return m.What == what })
}

// Paused tells whether the page is of a target that is paused.
func (d *overviewData) Paused() bool { return slices.Contains(d.All.Targets.Paused, d.Topic) }

func (c *Console) overview(r *http.Request) (view, error) {
	ctx := r.Context()
	d := &overviewData{Topic: r.FormValue("topic"), Tag: r.FormValue("tag")}
	// One by one: lists are few at a time, and one operator must not crowd out others.
	of := reachOf(r.FormValue("reach"))
	d.Reach, d.Reaches = of.Name, reaches
	d.River = newRiver(time.Now().UnixMilli(), of, zoneOf(r))
	var forecast api.Forecast
	q := url.Values{"from": {digitsOf(d.River.now)}, "to": {digitsOf(d.River.end())}, "step": {strconv.FormatInt(of.step, 10) + "m"}, "topic": {d.Topic}, "tag": {d.Tag}, "own": {"true"}}
	d.RiverErr = text(c.inside.get(ctx, "/forecast", q, &forecast))
	d.River.come(forecast.Steps)
	d.Counted = forecast.Next
	d.AllErr = text(c.inside.get(ctx, "/overview", url.Values{"minutes": {strconv.FormatInt(of.back, 10)}, "topic": {d.Topic}, "own": {"true"}}, &d.All))
	topicErr := d.AllErr
	if topicErr != "" && d.Topic != "" { // it is mistyped, or not the caller's: alerts are shown anyway
		d.AllErr = text(c.inside.get(ctx, "/overview", url.Values{"minutes": {"1"}, "own": {"true"}}, &d.All))
	}
	switch {
	case d.Tag != "":
		d.tagged(ctx, c.inside)
	case d.Topic != "" && topicErr == "":
		d.River.flowOf(d.All.Traffic)
		d.River.Note = "Deliveries are known of minutes in which the target was among the ten busiest or sickest of a dispatcher."
	case d.Topic == "" && d.All.Now != nil:
		d.River.flow(d.All.Series)
	case d.AllErr != "" || d.Topic != "":
		d.River.Note = "Deliveries are not shown: they are not known."
	default:
		d.River.Note = "Deliveries are not shown: they are counted of all targets together."
	}
	d.River.draw(d.Topic, d.Tag)
	if d.Topic+d.Tag == "" && d.AllErr == "" {
		var err error
		d.Lanes, err = c.lanes(ctx, d.River, &d.All)
		d.LanesErr = text(err)
	}
	d.ClusterErr = text(c.inside.get(ctx, "/cluster", nil, &d.Cluster))
	for _, s := range d.Cluster.Slots {
		if !s.Alive {
			d.Free++
		}
	}
	for _, l := range d.Cluster.Lag {
		if d.Lag += max(l.Lag, 0); l.Lag < 0 {
			d.LagMissing++
		}
	}
	return view{page: "overview", title: "Overview", data: d}, nil
}

// tagged adds the ended tasks of a tag to its river. Nobody counts them by minute, since there are
// any number of tags: it is one bounded list.
func (d *overviewData) tagged(ctx context.Context, in *inside) {
	var page api.Tasks
	q := url.Values{"tag": {d.Tag}, "topic": {d.Topic}, "ended": {"true"}, "from": {digitsOf(d.River.begin)}, "to": {digitsOf(d.River.now + d.River.step)}, "limit": {"1000"}}
	if err := in.get(ctx, "/tasks", q, &page); err != nil {
		d.River.Note = "Deliveries are not shown: " + text(err)
		return
	}
	d.River.ended(page.Tasks)
	d.River.Note = "Deliveries stand at their due times, without their lateness."
	if page.Cursor != "" {
		d.River.Note += " They are the latest " + digits(int64(len(page.Tasks))) + ": there are earlier ones."
	}
}

func digitsOf(n int64) string { return strconv.FormatInt(n, 10) }

func value(f *float64) float64 {
	if f == nil {
		return 0
	}
	return *f
}

// text is an error's own words; none: empty.
func text(err error) string {
	if err == nil {
		return ""
	}
	p := asProblem(err)
	return cmp.Or(p.Detail, p.Title)
}
