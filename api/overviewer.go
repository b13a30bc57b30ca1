package api

import (
	"context"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/notyet/notyet/internal/figures"
	"github.com/notyet/notyet/schemas"
	"github.com/notyet/notyet/store"
	"github.com/notyet/notyet/store/admin"
	"github.com/notyet/notyet/store/look"
)

const (
	// overviewFor is how long an overview is shown again: many pages that are open cost as much as
	// one. Processes speak every 5 s.
	overviewFor = 2 * time.Second
	// overviewTimeout limits one reading, and partTimeout each of its parts, which are read side by
	// side.
	overviewTimeout = 5 * time.Second
	partTimeout     = 3 * time.Second
	// overdueAfter is how long a task may be due before it counts as overdue: what was delivered is
	// settled well within it.
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
}

func newOverviewer(st *store.Store) *overviewer {
	return &overviewer{store: st, turn: make(chan struct{}, 1), series: series{store: st, minutes: map[int64]figures.Counts{}}}
}

// Overview returns how the installation is doing, with a series of so many minutes (at most 360).
func (l *Local) Overview(ctx context.Context, minutes int) (Overview, error) {
	ctx, cancel := context.WithTimeout(ctx, overviewTimeout)
	defer cancel()
	out, err := l.overview.get(ctx)
	if err != nil {
		return Overview{}, err
	}
	before := (last(time.UnixMilli(out.At)) - int64(minutes)) * time.Minute.Milliseconds()
	for len(out.Series) > 0 && out.Series[0].At <= before {
		out.Series = out.Series[1:]
	}
	return out, nil
}

// get returns the latest overview, or reads another one. Who comes meanwhile waits for that.
func (o *overviewer) get(ctx context.Context) (Overview, error) {
	if last := o.last.Load(); last != nil && time.Since(last.at) < overviewFor {
		return last.Overview, nil
	}
	select {
	case o.turn <- struct{}{}:
	case <-ctx.Done():
		return Overview{}, ctx.Err()
	}
	defer func() { <-o.turn }()
	if last := o.last.Load(); last != nil && time.Since(last.at) < overviewFor {
		return last.Overview, nil
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), overviewTimeout) // it is for others too, and who asks may leave
	defer cancel()
	out, err := o.read(ctx)
	if err == nil {
		o.last.Store(&shownOverview{time.Now(), out})
	}
	return out, err
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

func (o *overviewer) read(ctx context.Context) (Overview, error) {
	now, err := o.store.Time(ctx)
	if err != nil {
		return Overview{}, err
	}
	services, err := look.New(o.store).Services(ctx)
	if err != nil {
		return Overview{}, err
	}
	var p parts
	o.readParts(ctx, now, &p)
	total := totalOf(services)
	out := Overview{
		At: now.UnixMilli(), Services: Reporting{Alive: len(services), Reporting: total.Processes},
		Now: workNow(total), Series: o.series.points(now), DeadLetters: []LetterKind{}, Missing: append([]Missing{}, p.missing...),
	}
	if !p.misses("overdue") {
		out.Overdue = &Overdue{Count: p.overdue.N, More: p.overdue.More, Oldest: p.oldest}
	}
	for _, kind := range letterKinds() {
		if n := p.letters[kind]; n.N > 0 {
			out.DeadLetters = append(out.DeadLetters, LetterKind{kind, n.N, n.More})
		}
	}
	out.Targets = troubled(total, p.targets)
	out.Alerts = alerts(&evidence{services: services, slots: p.slots, now: total, since: func(minutes int64) figures.Counts { return o.series.since(now, minutes) }})
	return out, nil
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
		p.letters, err = look.New(o.store).CountKinds(ctx, letterKinds(), overviewCounted)
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

// letterKinds are the kinds of which there can be dead letters.
func letterKinds() []string {
	var out []string
	for _, kind := range schemas.Kinds() {
		if kind != schemas.KindMissed {
			out = append(out, kind)
		}
	}
	return out
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
