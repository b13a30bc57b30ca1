package api

import (
	"context"
	"maps"
	"math"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/notyet/notyet/internal/access"
	"github.com/notyet/notyet/internal/figures"
	"github.com/notyet/notyet/schemas"
	"github.com/notyet/notyet/store"
	"github.com/notyet/notyet/store/admin"
	"github.com/notyet/notyet/store/look"
)

// Overview is the installation's condition, by all of its processes. A token for some topics gets
// the overdue tasks, dead letters and targets that are its own.
type Overview struct {
	At          int64           `json:"at"                     doc:"when it was read, by the database's clock, Unix ms"`
	Services    Reporting       `json:"services"`
	Now         *Work           `json:"now,omitempty"          doc:"over the last minute; withheld from a token for some topics"`
	Series      []Minute        `json:"series"                 doc:"the minutes before, oldest first; one in which nothing was done is left out. The last minute is there some 15 s after its end"`
	Traffic     []Traffic       `json:"traffic"                doc:"by minute, of the one topic that was asked for, or of the ten targets with most late and dead tasks, then most deliveries"`
	Overdue     *Overdue        `json:"overdue,omitempty"`
	DeadLetters []LetterKind    `json:"dead_letters"           doc:"that were not replayed, by kind"`
	Targets     TroubledTargets `json:"targets"`
	Alerts      []Alert         `json:"alerts"                 doc:"rules of docs/alerts.yml whose condition holds. Prometheus also waits for a rule's time (for) before it fires"`
	Missing     []Missing       `json:"missing"                doc:"what is not known, because the database did not answer in time"`
	Withheld    []string        `json:"withheld,omitempty"     doc:"fields that are of the whole installation, and not told to a token for some topics"`
}

// Reporting is how many processes the figures are of.
type Reporting struct {
	Alive     int `json:"alive"     doc:"processes that have said within 15 s that they are alive"`
	Reporting int `json:"reporting" doc:"those of them whose figures are known: not those of another version"`
}

// Work is the work of some time.
type Work struct {
	Delivered   float64  `json:"delivered_per_second"        doc:"deliveries that were acknowledged, per second"`
	Stored      float64  `json:"stored_per_second"           doc:"intake records that were stored, per second; without reports"`
	Dead        float64  `json:"dead_per_second"             doc:"tasks that became dead letters at their delivery, and requests that were rejected, per second"`
	LatenessP50 *float64 `json:"lateness_p50_ms,omitempty"   doc:"half of the deliveries were at most so late, ms; exact to a factor of two; absent: there were none"`
	LatenessP99 *float64 `json:"lateness_p99_ms,omitempty"   doc:"99 of 100 were at most so late, ms; 262144: at least"`
}

// Minute is the work of a minute.
type Minute struct {
	At int64 `json:"at" doc:"when it began, by the database's clock, Unix ms"`
	Work
}

// Overdue are the tasks that should have been delivered.
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

// TroubledTargets are the targets with incomplete deliveries.
type TroubledTargets struct {
	Unresponsive     []string `json:"unresponsive"                doc:"topics of which a partition does not answer, and origins of callbacks, by name"`
	MoreUnresponsive int      `json:"more_unresponsive,omitempty" doc:"how many others there are, at most"`
	Paused           []string `json:"paused"                      doc:"by name"`
	Limited          []string `json:"limited"                     doc:"by name; without those that are paused"`
}

// Missing is an unknown part of an Overview.
type Missing struct {
	What string `json:"what" doc:"its field"`
	Why  string `json:"why"`
}

func work(perSecond func(what string) float64, lateness figures.Histogram) Work {
	return Work{
		Delivered: rounded(perSecond(figures.Delivered)), Stored: rounded(perSecond(figures.Stored)),
		Dead:        rounded(perSecond(figures.Exhausted) + perSecond(figures.Rejected)),
		LatenessP50: quantile(lateness, 0.5), LatenessP99: quantile(lateness, 0.99),
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

const (
	// overviewFor is how long an overview is shown again: many open pages cost as much as one.
	// Processes speak every 5 s.
	overviewFor = 2 * time.Second
	// overviewTimeout limits one reading, and partTimeout each of the parts, read side by side.
	overviewTimeout = 5 * time.Second
	partTimeout     = 3 * time.Second
	// overdueAfter is how long a task may be due before it counts as overdue: deliveries settle
	// well before.
	overdueAfter = 5 * time.Second
	// overviewCounted is up to where tasks and dead letters are counted.
	overviewCounted = 10_000
)

// overviewer makes the overview, one at a time.
type overviewer struct {
	store  *store.Store
	turn   chan struct{} // a token for who reads
	last   atomic.Pointer[shownOverview]
	series series // whoever has the token uses it
}

type shownOverview struct {
	at time.Time
	Overview
	of *condition
}

// condition is what an Overview is made of: that of one database, or the sum of several.
type condition struct {
	now      time.Time
	services []admin.Service
	alive    int // processes
	total    *figures.Total
	minutes  map[int64]figures.Minute
	parts
}

func newOverviewer(st *store.Store) *overviewer {
	return &overviewer{store: st, turn: make(chan struct{}, 1), series: series{store: st, minutes: map[int64]figures.Minute{}}}
}

// get returns the latest overview, or reads another one.
func (o *overviewer) get(ctx context.Context) (Overview, error) {
	shown, err := o.look(ctx)
	if err != nil {
		return Overview{}, err
	}
	return shown.Overview, nil
}

// look is get, with what the overview is made of. Callers meanwhile wait for the same one.
func (o *overviewer) look(ctx context.Context) (*shownOverview, error) {
	if last := o.last.Load(); last != nil && time.Since(last.at) < overviewFor {
		return last, nil
	}
	select {
	case o.turn <- struct{}{}:
	case <-ctx.Done():
		return nil, ctx.Err()
	}
	defer func() { <-o.turn }()
	if last := o.last.Load(); last != nil && time.Since(last.at) < overviewFor {
		return last, nil
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), overviewTimeout) // it is for others too, and who asks may leave
	defer cancel()
	c, err := o.read(ctx)
	if err != nil {
		return nil, err
	}
	shown := &shownOverview{time.Now(), c.overview(), c}
	o.last.Store(shown)
	return shown, nil
}

// parts are read side by side. Each is written by one reader.
type parts struct {
	overdue look.Bounded
	oldest  int64
	letters map[string]look.Bounded
	targets []admin.Policy
	slots   []store.Slot

	mu      sync.Mutex
	missing []Missing
}

func (o *overviewer) read(ctx context.Context) (*condition, error) {
	now, err := o.store.Time(ctx)
	if err != nil {
		return nil, err
	}
	services, err := look.New(o.store).Services(ctx)
	if err != nil {
		return nil, err
	}
	c := &condition{now: now, services: services, alive: len(services), total: totalOf(services)}
	o.readParts(ctx, now, &c.parts)
	c.minutes = maps.Clone(o.series.minutes)
	return c, nil
}

func (c *condition) overview() Overview {
	latest := work(func(what string) float64 { return c.total.PerSecond[what] }, c.total.Lateness)
	out := Overview{
		At: c.now.UnixMilli(), Services: Reporting{Alive: c.alive, Reporting: c.total.Processes},
		Now:    &latest,
		Series: points(c.minutes, c.now), Traffic: []Traffic{}, Missing: append([]Missing{}, c.missing...),
	}
	if !c.misses("overdue") {
		out.Overdue = &Overdue{Count: c.overdue.N, More: c.overdue.More, Oldest: c.oldest}
	}
	out.letters(c.letters)
	out.Targets = troubled(c.total, c.targets)
	out.Alerts = alerts(&evidence{services: c.services, slots: c.slots, now: c.total, since: func(minutes int64) figures.Counts { return since(c.minutes, c.now, minutes) }})
	return out
}

func (o *Overview) letters(counts map[string]look.Bounded) {
	o.DeadLetters = []LetterKind{}
	for _, kind := range schemas.LetterKinds() {
		if n := counts[kind]; n.N > 0 || n.More {
			o.DeadLetters = append(o.DeadLetters, LetterKind{kind, n.N, n.More})
		}
	}
}

// overviewOf returns the overview of a caller for some topics.
func (l *Local) overviewOf(ctx context.Context, c access.Caller) (Overview, error) {
	out, err := l.overview.get(ctx)
	if err != nil {
		return Overview{}, err
	}
	own := func(topics []string) []string {
		return slices.DeleteFunc(slices.Clone(topics), func(topic string) bool { return !c.Topic(topic) })
	}
	out.Now, out.Series, out.Alerts, out.Withheld = nil, []Minute{}, []Alert{}, []string{"now", "series", "alerts"}
	out.Targets = TroubledTargets{Unresponsive: own(out.Targets.Unresponsive), Paused: own(out.Targets.Paused), Limited: own(out.Targets.Limited)}
	p := parts{missing: slices.DeleteFunc(slices.Clone(out.Missing), func(m Missing) bool { return m.What != "targets" })}
	_, err = listing(ctx, l, func(ctx context.Context) (struct{}, error) {
		topics, err := l.topics(ctx, c.Topic)
		var found look.Bounded
		var oldest int64
		if err == nil {
			found, oldest, err = look.New(l.store).CountOverdueOf(ctx, topics, out.At-overdueAfter.Milliseconds(), overviewCounted)
		}
		if out.Overdue = &(Overdue{Count: found.N, More: found.More, Oldest: oldest}); err != nil {
			out.Overdue = nil
			p.miss("overdue", err)
		}
		letters, err := look.New(l.store).CountKindsOf(ctx, schemas.LetterKinds(), overviewCounted, func(topic string) bool { return withinLetters(c, topic) == nil })
		if err != nil {
			p.miss("dead_letters", err)
		}
		out.letters(letters)
		return struct{}{}, nil
	})
	out.Missing = append([]Missing{}, p.missing...)
	return out, err
}

func (o *overviewer) readParts(ctx context.Context, now time.Time, p *parts) {
	var group errgroup.Group
	part := func(what string, read func(ctx context.Context) error) {
		group.Go(func() error {
			ctx, cancel := context.WithTimeout(ctx, partTimeout)
			defer cancel()
			if err := read(ctx); err != nil {
				p.miss(what, err)
			}
			return nil
		})
	}
	part("series", func(ctx context.Context) error { return o.series.read(ctx, now) })
	part("overdue", func(ctx context.Context) (err error) {
		p.overdue, p.oldest, err = look.New(o.store).CountOverdue(ctx, now.Add(-overdueAfter).UnixMilli(), overviewCounted)
		return err
	})
	part("dead_letters", func(ctx context.Context) (err error) {
		p.letters, err = look.New(o.store).CountKinds(ctx, schemas.LetterKinds(), overviewCounted)
		return err
	})
	part("targets", func(ctx context.Context) (err error) {
		p.targets, err = admin.New(o.store).Policies(ctx)
		return err
	})
	part("alerts", func(ctx context.Context) (err error) {
		p.slots, err = o.store.Slots(ctx)
		return err
	})
	_ = group.Wait()
}

func (p *parts) miss(what string, err error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.missing = append(p.missing, Missing{what, err.Error()})
}

func (p *parts) misses(what string) bool {
	return slices.ContainsFunc(p.missing, func(m Missing) bool { return m.What == what })
}

func totalOf(services []admin.Service) *figures.Total {
	total := &figures.Total{}
	for _, s := range services {
		if now, ok := figures.ParseNow(s.Figures); ok {
			total.Add(now)
		}
	}
	return total
}

func troubled(total *figures.Total, policies []admin.Policy) TroubledTargets {
	out := TroubledTargets{Unresponsive: append([]string{}, total.Targets()...), MoreUnresponsive: total.More, Paused: []string{}, Limited: []string{}}
	for _, p := range policies {
		switch {
		case p.Paused:
			out.Paused = append(out.Paused, p.Topic)
		case !p.Open():
			out.Limited = append(out.Limited, p.Topic)
		}
	}
	return out
}

// series is the work of all processes in each minute, from the database. So the series survives
// each process and is the same everywhere.
//
// A minute's figures are final figures.FinalAfter minutes after its end. Final ones are kept here,
// and a reading reads only the latest minutes, for any number of processes. The holder of the
// overviewer's token uses the series.
type series struct {
	store   *store.Store
	minutes map[int64]figures.Minute // since 1970; one in which nothing was done is not there
	known   span                     // the minutes that are final and read
}

type span struct{ from, to int64 }

const (
	// seriesBite is how many minutes are read at a time.
	seriesBite = 10
	// arrival is how long after a minute's end its figures are expected.
	arrival = 15 * time.Second
)

// last is the last minute to show.
func last(now time.Time) int64 { return now.Add(-arrival).Unix()/60 - 1 }

// read reads the unknown minutes, the latest first. After a failure, the next call goes on.
func (s *series) read(ctx context.Context, now time.Time) error {
	newest := last(now)
	oldest, final := newest-admin.FiguresMemory+1, newest-figures.FinalAfter
	if s.known.to > final || s.known.to < oldest { // the database's clock was set back, or nothing is known
		s.known = span{final + 1, final}
	}
	// Bites, for a process without a request for hours.
	for to := newest; to > s.known.to; to -= seriesBite {
		if err := s.fetch(ctx, max(s.known.to+1, to-seriesBite+1), to); err != nil {
			return err
		}
	}
	s.known.to = final
	for s.known.from > oldest {
		begin := max(oldest, s.known.from-seriesBite)
		if err := s.fetch(ctx, begin, s.known.from-1); err != nil {
			return err
		}
		s.known.from = begin
	}
	maps.DeleteFunc(s.minutes, func(minute int64, _ figures.Minute) bool { return minute < oldest || minute > newest })
	return nil
}

func (s *series) fetch(ctx context.Context, from, to int64) error {
	rows, err := look.New(s.store).Minutes(ctx, from, to)
	if err != nil {
		return err
	}
	maps.DeleteFunc(s.minutes, func(minute int64, _ figures.Minute) bool { return minute >= from && minute <= to })
	for _, row := range rows {
		if counts, ok := figures.ParseMinute(row.Data); ok {
			s.minutes[row.Minute] = s.minutes[row.Minute].Plus(counts)
		}
	}
	return nil
}

// points returns the minutes with work, oldest first.
func points(minutes map[int64]figures.Minute, now time.Time) []Minute {
	out := []Minute{}
	for _, minute := range slices.Sorted(maps.Keys(minutes)) {
		if newest := last(now); minute <= newest && minute > newest-admin.FiguresMemory {
			counts := minutes[minute]
			perSecond := func(what string) float64 { return float64(counts.N[what]) / 60 }
			out = append(out, Minute{At: minute * time.Minute.Milliseconds(), Work: work(perSecond, counts.Lateness)})
		}
	}
	return out
}

// since returns the work of the latest n minutes.
func since(minutes map[int64]figures.Minute, now time.Time, n int64) figures.Counts {
	var out figures.Counts
	newest := last(now)
	for minute := newest - n + 1; minute <= newest; minute++ {
		out = out.Plus(minutes[minute].Counts)
	}
	return out
}
