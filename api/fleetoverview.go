package api

import (
	"cmp"
	"context"
	"fmt"
	"slices"

	"github.com/notyet/notyet/internal/access"
	"github.com/notyet/notyet/internal/figures"
	"github.com/notyet/notyet/store/admin"
	"github.com/notyet/notyet/store/look"
)

// Overview returns how the installation is doing, as far as the caller may know: with series of so
// many minutes (at most 360), and the traffic of a topic, or of some topics without one.
func (f *Fleet) Overview(ctx context.Context, minutes int, topic string) (Overview, error) {
	shown, err := f.look(ctx)
	if err != nil {
		return Overview{}, err
	}
	out := shown.Overview
	if caller := access.From(ctx); !caller.AllTopics() {
		out, err = f.overviewOf(ctx, caller)
	}
	out.cut(minutes)
	out.Traffic = shown.of.traffic(topic, int64(minutes), allowed(ctx))
	return out, err
}

// look returns the overview of all databases. Each has the figures of the work on its own targets.
func (f *Fleet) look(ctx context.Context) (*shownOverview, error) {
	ctx, cancel := context.WithTimeout(ctx, overviewTimeout)
	defer cancel()
	if l := f.alone(); l != nil {
		return l.overview.look(ctx)
	}
	replies, missing, err := each(ctx, f.databases, "", func(ctx context.Context, l *Local, _ *Member) (*shownOverview, error) { return l.overview.look(ctx) })
	if err != nil {
		return nil, err
	}
	if last := f.summed.Load(); last != nil && slices.Equal(last.replies, replies) && slices.Equal(last.missing, missing) {
		return last.shown, nil
	}
	c := f.sum(replies)
	out := c.overview()
	out.Missing = append(out.Missing, missingDatabases(missing)...)
	shown := &shownOverview{Overview: out, of: c}
	f.summed.Store(&summedOverview{replies, missing, shown})
	return shown, nil
}

// summedOverview is the sum of what databases have said, which they repeat for overviewFor.
type summedOverview struct {
	replies []reply[*shownOverview]
	missing []int
	shown   *shownOverview
}

func missingDatabases(numbers []int) (out []Missing) {
	for _, number := range numbers {
		out = append(out, Missing{fmt.Sprintf("database %d", number), "it does not answer: what it holds is in none of these figures"})
	}
	return out
}

// sum adds the conditions of databases. A part that is not known of one of them is that of the
// others, and named.
func (d *databases) sum(replies []reply[*shownOverview]) *condition {
	out := &condition{now: replies[0].got.of.now, total: &figures.Total{}, minutes: map[int64]figures.Minute{}}
	out.letters = map[string]look.Bounded{}
	alive, reporting := map[string]bool{}, map[string]bool{} // a process stands in each database
	for _, r := range replies {
		c := r.got.of
		out.services = append(out.services, c.services...)
		for _, s := range c.services {
			alive[s.ID] = true
			if now, ok := figures.ParseNow(s.Figures); ok {
				reporting[s.ID] = true
				out.total.Add(now)
			}
		}
		for minute, counts := range c.minutes {
			out.minutes[minute] = out.minutes[minute].Plus(counts)
		}
		out.overdue = plus(out.overdue, c.overdue)
		out.oldest = earlier(out.oldest, c.oldest)
		for kind, n := range c.letters {
			out.letters[kind] = plus(out.letters[kind], n)
		}
		out.slots = append(out.slots, c.slots...)
		out.targets = append(out.targets, slices.DeleteFunc(slices.Clone(c.targets), func(p admin.Policy) bool { return !d.isHome(r.Member, p.Topic) })...)
		out.missing = append(out.missing, ofDatabase(r.Number, c.missing)...)
	}
	out.alive, out.total.Processes = len(alive), len(reporting)
	slices.SortFunc(out.targets, func(a, b admin.Policy) int { return cmp.Compare(a.Topic, b.Topic) })
	return out
}

func ofDatabase(number int, parts []Missing) (out []Missing) {
	for _, m := range parts {
		out = append(out, Missing{m.What, fmt.Sprintf("of database %d: %s", number, m.Why)})
	}
	return out
}

func plus(a, b look.Bounded) look.Bounded { return look.Bounded{N: a.N + b.N, More: a.More || b.More} }

// earlier returns the earlier instant; 0: none.
func earlier(a, b int64) int64 {
	if a == 0 || b == 0 {
		return max(a, b)
	}
	return min(a, b)
}

// overviewOf returns the overview of a caller for some topics.
func (f *Fleet) overviewOf(ctx context.Context, c access.Caller) (out Overview, err error) {
	if l := f.alone(); l != nil {
		return l.overviewOf(ctx, c)
	}
	replies, missing, err := each(ctx, f.databases, "", func(ctx context.Context, l *Local, _ *Member) (Overview, error) { return l.overviewOf(ctx, c) })
	if err != nil {
		return Overview{}, err
	}
	out = replies[0].got
	out.Overdue, out.Targets, out.Missing = nil, TroubledTargets{Unresponsive: []string{}, Paused: []string{}, Limited: []string{}}, missingDatabases(missing)
	if out.Missing == nil {
		out.Missing = []Missing{}
	}
	counts := map[string]look.Bounded{}
	for _, r := range replies {
		o := r.got
		if d := o.Overdue; d != nil {
			all := Overdue{}
			if out.Overdue != nil {
				all = *out.Overdue
			}
			out.Overdue = &Overdue{Count: all.Count + d.Count, More: all.More || d.More, Oldest: earlier(all.Oldest, d.Oldest)}
		}
		for _, k := range o.DeadLetters {
			counts[k.Kind] = plus(counts[k.Kind], look.Bounded{N: k.Count, More: k.More})
		}
		home := func(topics []string) []string {
			return slices.DeleteFunc(slices.Clone(topics), func(topic string) bool { return !f.isHome(r.Member, topic) })
		}
		out.Targets.Unresponsive = append(out.Targets.Unresponsive, o.Targets.Unresponsive...)
		out.Targets.Paused = append(out.Targets.Paused, home(o.Targets.Paused)...)
		out.Targets.Limited = append(out.Targets.Limited, home(o.Targets.Limited)...)
		out.Missing = append(out.Missing, ofDatabase(r.Number, o.Missing)...)
	}
	for _, names := range []*[]string{&out.Targets.Unresponsive, &out.Targets.Paused, &out.Targets.Limited} {
		slices.Sort(*names)
		*names = slices.Compact(*names)
	}
	out.letters(counts)
	return out, nil
}
