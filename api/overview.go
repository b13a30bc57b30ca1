package api

import (
	"context"
	"math"
	"net/http"

	"github.com/notyet/notyet/internal/access"
	"github.com/notyet/notyet/internal/figures"
)

// Overview is how the installation is doing, as all of its processes say.
type Overview struct {
	At          int64           `json:"at"                     doc:"when it was read, by the database's clock, Unix ms"`
	Services    Reporting       `json:"services"`
	Now         Work            `json:"now"                    doc:"over the last minute"`
	Series      []Minute        `json:"series"                 doc:"the minutes before, oldest first; one in which nothing was done is left out. The last minute is there some 15 s after its end"`
	Overdue     *Overdue        `json:"overdue,omitempty"`
	DeadLetters []LetterKind    `json:"dead_letters"           doc:"that were not replayed, by kind"`
	Targets     TroubledTargets `json:"targets"`
	Alerts      []Alert         `json:"alerts"                 doc:"rules of docs/alerts.yml whose condition holds. Prometheus also waits for a rule's time (for) before it fires"`
	Missing     []Missing       `json:"missing"                doc:"what is not known, because the database did not answer in time"`
}

// Reporting is how many processes the figures are of.
type Reporting struct {
	Alive     int `json:"alive"     doc:"processes that have said within 15 s that they are alive"`
	Reporting int `json:"reporting" doc:"those of them whose figures are known: not those of another version"`
}

// Work is what was done in some time.
type Work struct {
	Delivered   float64  `json:"delivered_per_second"        doc:"deliveries that were acknowledged, per second"`
	Stored      float64  `json:"stored_per_second"           doc:"intake records that were stored, per second; without reports"`
	Dead        float64  `json:"dead_per_second"             doc:"tasks that became dead letters at their delivery, and requests that were rejected, per second"`
	LatenessP50 *float64 `json:"lateness_p50_ms,omitempty"   doc:"half of the deliveries were at most so late, ms; exact to a factor of two; absent: there were none"`
	LatenessP99 *float64 `json:"lateness_p99_ms,omitempty"   doc:"99 of 100 were at most so late, ms; 262144: at least"`
}

// Minute is what was done in a minute.
type Minute struct {
	At int64 `json:"at" doc:"when it began, by the database's clock, Unix ms"`
	Work
}

// Overdue is what should have been delivered.
type Overdue struct {
	Count  int64 `json:"count"            doc:"tasks that have been due for more than 5 s and are not settled; those of paused targets do not count"`
	More   bool  `json:"more"             doc:"there are more than were counted"`
	Oldest int64 `json:"oldest,omitempty" doc:"when the first of them was due, Unix ms"`
}

// LetterKind is how many dead letters there are of a kind.
type LetterKind struct {
	Kind  string `json:"kind"`
	Count int64  `json:"count"`
	More  bool   `json:"more"  doc:"there are more than were counted"`
}

// TroubledTargets are the targets to which not everything is delivered.
type TroubledTargets struct {
	Unresponsive     []string `json:"unresponsive"                doc:"topics of which a partition does not answer, and origins of callbacks, by name"`
	MoreUnresponsive int      `json:"more_unresponsive,omitempty" doc:"how many others there are, at most"`
	Paused           []string `json:"paused"                      doc:"by name"`
	Limited          []string `json:"limited"                     doc:"by name; without those that are paused"`
}

// Alert is a rule of docs/alerts.yml whose condition holds.
type Alert struct {
	Name string `json:"name" doc:"as in docs/alerts.yml"`
	Why  string `json:"why"`
}

// Missing is a part of an Overview that is not known.
type Missing struct {
	What string `json:"what" doc:"its field"`
	Why  string `json:"why"`
}

func work(c figures.Counts, seconds float64) Work {
	per := func(names ...string) (n float64) {
		for _, name := range names {
			n += float64(c.N[name])
		}
		return rounded(n / seconds)
	}
	return Work{
		Delivered: per(figures.Delivered), Stored: per(figures.Stored), Dead: per(figures.Exhausted, figures.Rejected),
		LatenessP50: quantile(c.Lateness, 0.5), LatenessP99: quantile(c.Lateness, 0.99),
	}
}

func workNow(t *figures.Total) Work {
	per := t.PerSecond
	return Work{
		Delivered: rounded(per[figures.Delivered]), Stored: rounded(per[figures.Stored]), Dead: rounded(per[figures.Exhausted] + per[figures.Rejected]),
		LatenessP50: quantile(t.Lateness, 0.5), LatenessP99: quantile(t.Lateness, 0.99),
	}
}

func quantile(h figures.Histogram, q float64) *float64 {
	seconds, ok := h.Quantile(q)
	if !ok {
		return nil
	}
	ms := rounded(seconds * 1000)
	return &ms
}

func rounded(v float64) float64 { return math.Round(v*1000) / 1000 }

type overviewInput struct {
	Minutes int `query:"minutes" doc:"how many minutes the series goes back" default:"180" minimum:"1" maximum:"360"`
}

// scope: the figures are of all topics.
func (in *overviewInput) scope(c access.Caller) error { return withinTopics(c, "") }

func (s *server) overview() {
	register(s, access.Read, "show-overview", http.MethodGet, "/api/v1/overview", "Show how late deliveries are, how many there are, and what is wrong", s.showOverview)
}

func (s *server) showOverview(ctx ctxType, in *overviewInput) (*body[Overview], error) {
	out, err := s.local.Overview(ctx, in.Minutes)
	return &body[Overview]{out}, problem(err)
}

// Overview returns how the installation is doing, with a series of so many minutes (at most 360).
func (c *Client) Overview(ctx context.Context, minutes int) (Overview, error) {
	return get[Overview](ctx, c, "/overview", overviewInput{minutes}, nil)
}
