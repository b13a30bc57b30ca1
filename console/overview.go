package console

import (
	"cmp"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"time"

	"github.com/notyet/notyet/api"
)

// overviewData is the first page. An unreadable part says why, and the others are shown.
type overviewData struct {
	Topic      string
	Chart      chart
	ChartErr   string
	Counted    int64 // Unix ms; 0: all
	All        api.Overview
	AllErr     string
	Lateness   curve // p99, ms
	Delivered  curve // per second
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

const (
	chartMinutes = 120
	curveMinutes = 360
)

func (c *Console) overview(r *http.Request) (view, error) {
	ctx := r.Context()
	d := &overviewData{Topic: r.FormValue("topic")}
	// One by one: lists are few at a time, and one operator must not crowd out others.
	var forecast api.Forecast
	begin := time.Now().Truncate(time.Minute)
	q := url.Values{"from": {ms(begin)}, "to": {ms(begin.Add(chartMinutes * time.Minute))}, "step": {"1m"}, "topic": {d.Topic}, "own": {"true"}}
	d.ChartErr = text(c.inside.get(ctx, "/forecast", q, &forecast))
	d.Chart, d.Counted = newChart(begin.UnixMilli(), chartMinutes, forecast.Steps), forecast.Next
	d.AllErr = text(c.inside.get(ctx, "/overview", url.Values{"minutes": {strconv.Itoa(curveMinutes)}, "own": {"true"}}, &d.All))
	d.Lateness = newCurve(d.All.At, d.All.Series, func(m api.Minute) float64 { return value(m.LatenessP99) })
	d.Delivered = newCurve(d.All.At, d.All.Series, func(m api.Minute) float64 { return m.Delivered })
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

func ms(t time.Time) string { return strconv.FormatInt(t.UnixMilli(), 10) }

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
