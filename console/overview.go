package console

import (
	"context"
	"fmt"
	"net/http"
	"net/url"
	"strconv"
	"sync"
	"time"

	"github.com/notyet/notyet/api"
)

// overviewData is the first page. A part that could not be read says why, and the others are shown.
type overviewData struct {
	Chart    chart
	ChartErr string
	Topic    string

	Overdue    int64 // due for a minute and longer, and not taken
	OverdueErr string

	Cluster    api.Cluster
	ClusterErr string
	Free       int // slots without an owner that lives
	Lag        int64
	Kinds      []kindCount
	KindsErr   string
	Targets    []api.TargetPolicy
	TargetsErr string
	Alarms     []alarm
}

type kindCount struct {
	Kind  string
	Count int64
}

// alarm is an alert that these figures would raise.
type alarm struct{ Alert, What string }

// letterKinds are the kinds of dead letters.
var letterKinds = []string{"dead", "undeliverable", "expired", "rejected", "callback"}

const (
	chartMinutes = 120
	overdueAfter = time.Minute
	overdueReach = 7 * 24 * time.Hour
)

func (c *Console) overview(r *http.Request) (view, error) {
	ctx, now := r.Context(), time.Now()
	d := &overviewData{Topic: r.FormValue("topic")}
	var forecast, overdue api.Forecast
	var targets api.Targets
	// One after the other: lists are few at a time, and an operator who looks must not crowd out others.
	begin := now.Truncate(time.Minute)
	d.ChartErr = text(c.inside.get(ctx, "/forecast", span(begin, begin.Add(chartMinutes*time.Minute), time.Minute, d.Topic), &forecast))
	d.Chart = newChart(begin.UnixMilli(), chartMinutes, forecast.Steps)
	d.OverdueErr = text(c.inside.get(ctx, "/forecast", span(now.Add(-overdueReach), now.Add(-overdueAfter), time.Hour, d.Topic), &overdue))
	for _, s := range overdue.Steps {
		d.Overdue += s.Count
	}
	d.ClusterErr = text(c.inside.get(ctx, "/cluster", nil, &d.Cluster))
	d.TargetsErr = text(c.inside.get(ctx, "/targets", nil, &targets))
	d.Targets = targets.Targets
	d.Kinds, d.KindsErr = c.countKinds(ctx)
	d.judge()
	return view{page: "overview", title: "Overview", data: d}, nil
}

func span(from, to time.Time, step time.Duration, topic string) url.Values {
	q := url.Values{"from": {ms(from)}, "to": {ms(to)}, "step": {step.String()}}
	if topic != "" {
		q.Set("topic", topic)
	}
	return q
}

func ms(t time.Time) string { return strconv.FormatInt(t.UnixMilli(), 10) }

// text is an error's own words; none: empty.
func text(err error) string {
	if err == nil {
		return ""
	}
	p := asProblem(err)
	if p.Detail != "" {
		return p.Detail
	}
	return p.Title
}

// countKinds counts the dead letters of each kind, two kinds at a time.
func (c *Console) countKinds(ctx context.Context) ([]kindCount, string) {
	out, wrong := make([]kindCount, len(letterKinds)), make([]string, len(letterKinds))
	var all sync.WaitGroup
	places := make(chan struct{}, 2)
	for i, kind := range letterKinds {
		all.Go(func() {
			places <- struct{}{}
			defer func() { <-places }()
			var n api.Count
			wrong[i] = text(c.inside.get(ctx, "/deadletters/count", url.Values{"kind": {kind}}, &n))
			out[i] = kindCount{kind, n.Count}
		})
	}
	all.Wait()
	for _, w := range wrong {
		if w != "" {
			return nil, w
		}
	}
	return out, ""
}

// judge says which alerts these figures would raise. Each has a page in docs/runbooks.
func (d *overviewData) judge() {
	raise := func(alert, form string, args ...any) {
		d.Alarms = append(d.Alarms, alarm{alert, fmt.Sprintf(form, args...)})
	}
	if d.Overdue > 0 {
		raise("NotyetOverdue", "%s tasks have been due for a minute and nobody has taken them", digits(d.Overdue))
	}
	if d.ClusterErr == "" {
		d.judgeCluster(raise)
	}
}

func (d *overviewData) judgeCluster(raise func(string, string, ...any)) {
	kinds := map[string]bool{}
	for _, s := range d.Cluster.Services {
		kinds[s.Kind] = true
	}
	whole := kinds["all"] || kinds["dev"]
	if !whole && !kinds["scanner"] {
		raise("NotyetNoScanner", "no scanner is alive: requests wait in Kafka")
	}
	if !whole && !kinds["dispatcher"] {
		raise("NotyetNoDispatcher", "no dispatcher is alive: nothing is delivered")
	}
	for _, s := range d.Cluster.Slots {
		if !s.Alive {
			d.Free++
		}
	}
	if d.Free > 0 {
		raise("NotyetUnownedSlots", "%d of %d slots have no owner that is alive", d.Free, len(d.Cluster.Slots))
	}
	for _, l := range d.Cluster.Lag {
		d.Lag += max(l.Lag, 0)
		if l.State != "ok" && l.State != "new" {
			raise("NotyetIntakeStands", "%s/%d: %s %s", l.Topic, l.Partition, l.State, l.Detail)
		}
	}
}
