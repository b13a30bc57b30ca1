package console

import (
	"cmp"
	"context"
	"math/bits"
	"net/url"
	"slices"
	"strings"

	"github.com/notyet/notyet/api"
	"github.com/notyet/notyet/deadletter"
)

// lane is a target in trouble below the river, on the same scale of time.
type lane struct {
	Topic   string
	Silent  bool // it does not answer
	Paused  bool
	Limited bool
	At      int64  // when its policy was changed last, Unix ms; 0: not known
	Held    string // how many tasks wait; "": not known
	Dead    int
	Last    int64 // when the latest of them died, Unix ms
	Dots    []deadDot
	From    int // x of its pause
	Width   int
	until   int64 // when the pause ends, Unix ms; 0: when somebody resumes it
	since   int64 // where the river begins
}

// deadDot is some time in which tasks of a lane have died.
type deadDot struct {
	X, Count int
	from     int64 // Unix ms
}

// R is its radius.
func (d deadDot) R() int { return 2 + min(bits.Len(uint(d.Count)), 5) }

// Says is the dot in words.
func (d deadDot) Says() string {
	return clock(d.from, "15:04") + ": " + digits(int64(d.Count)) + " dead"
}

// lanes are the targets with most trouble.
type lanes struct {
	Lanes  []lane
	More   bool // there are other targets in trouble
	Looked int  // how many dead letters were looked at
	Older  bool // there may be others in this time
}

const (
	// shownLanes leaves room on a page of 60 kB, of which the river takes 40.
	shownLanes = 6
	// laneNames is how many bytes their names have, each of which stands in several links.
	laneNames = 400
	// lanePolicies is how many policies are read, each with a count of what is held.
	lanePolicies = 20
	laneLetters  = 200
	// laneCells is how many dots the time before now has room for.
	laneCells = 6
)

// lanes reads what the overview lacks: policies, and the latest dead letters. Each is one bounded
// list. The rest is shown without a list that cannot be read.
func (c *Console) lanes(ctx context.Context, v *river, all *api.Overview) (out lanes, err error) {
	var policies api.Targets
	var letters api.Letters
	var errs []error
	if unread := func(m api.Missing) bool { return m.What == "dead_letters" }; len(all.DeadLetters) > 0 || slices.ContainsFunc(all.Missing, unread) {
		errs = append(errs, c.inside.get(ctx, "/deadletters", url.Values{"newest": {"true"}, "limit": {digitsOf(laneLetters)}}, &letters))
	}
	if len(all.Targets.Paused)+len(all.Targets.Limited) > 0 {
		errs = append(errs, c.inside.get(ctx, "/targets", url.Values{"limit": {digitsOf(lanePolicies)}}, &policies))
	}
	out = newLanes(v, &all.Targets, policies.Targets, letters.Letters.Letters)
	looked := letters.Letters.Letters
	out.Looked = len(looked)
	out.Older = letters.Cursor != "" && (len(looked) == 0 || looked[len(looked)-1].DiedAt > v.begin)
	return out, cmp.Or(errs...)
}

// newLanes puts targets that do not answer first, then paused ones, then those with most dead
// letters.
func newLanes(v *river, in *api.TroubledTargets, policies []api.TargetPolicy, letters []deadletter.Letter) (out lanes) {
	byTopic := map[string]*lane{}
	of := func(topic string) *lane {
		if byTopic[topic] == nil {
			byTopic[topic] = &lane{Topic: topic, since: v.begin}
		}
		return byTopic[topic]
	}
	for _, topic := range in.Unresponsive {
		of(topic).Silent = true
	}
	for _, topic := range in.Limited {
		of(topic).Limited = true
	}
	for _, topic := range in.Paused {
		of(topic).Paused = true
	}
	for _, p := range policies {
		if l := byTopic[p.Topic]; l != nil {
			l.Held, l.At, l.until = counted(p.Held), p.Changed, p.Until
		}
	}
	for _, died := range letters {
		if died.DiedAt >= v.begin && died.DiedAt < v.now+v.step && died.Topic != "" {
			of(died.Topic).die(v, died.DiedAt)
		}
	}
	for _, l := range byTopic {
		if l.Paused {
			l.hatch(v)
		}
		out.Lanes = append(out.Lanes, *l)
	}
	first := func(yes bool) int {
		if yes {
			return 0
		}
		return 1
	}
	slices.SortFunc(out.Lanes, func(a, b lane) int {
		return cmp.Or(cmp.Compare(first(a.Silent), first(b.Silent)), cmp.Compare(first(a.Paused), first(b.Paused)), cmp.Compare(b.Dead, a.Dead), strings.Compare(a.Topic, b.Topic))
	})
	show, bytes := 0, 0
	for show < min(len(out.Lanes), shownLanes) && bytes < laneNames {
		bytes += len(url.QueryEscape(out.Lanes[show].Topic))
		show++
	}
	out.More = len(out.Lanes) > show || in.MoreUnresponsive > 0
	out.Lanes = out.Lanes[:show]
	return out
}

// hatch marks the time of the pause, as far as the river goes. Where it is not known, it is now.
func (l *lane) hatch(v *river) {
	x := func(at int64) int { return min(max(int((at-v.begin)/v.step), 0)*barWidth, v.Width) }
	l.From, l.Width = x(v.now), barWidth
	if l.At > 0 {
		l.From = x(l.At)
		l.Width = max(x(cmp.Or(l.until, v.end()))-l.From, barWidth)
	}
}

// die adds a dead letter.
func (l *lane) die(v *river, at int64) {
	cell := max(int64(v.Now/barWidth/laneCells), 1) * v.step
	from := v.begin + (at-v.begin)/cell*cell
	x := min(int((from-v.begin+cell/2)*barWidth/v.step), v.Now) // the last one has just begun
	l.Dead, l.Last = l.Dead+1, max(l.Last, at)
	i := slices.IndexFunc(l.Dots, func(d deadDot) bool { return d.X == x })
	if i < 0 {
		i = len(l.Dots)
		l.Dots = append(l.Dots, deadDot{X: x, from: from})
	}
	l.Dots[i].Count++
}

// Name is the target, of a long name its beginning.
func (l lane) Name() string { return brief(visible(l.Topic), 60) }

// Letters are the dead letters of the lane.
func (l lane) Letters() string {
	return "/deadletters?" + url.Values{"topic": {l.Topic}, "since": {digitsOf(l.since)}}.Encode()
}

// Tasks are those to come.
func (l lane) Tasks() string { return "/find?" + url.Values{"topic": {l.Topic}}.Encode() }

// River is the first page with the river of this target alone.
func (l lane) River() string { return "/?" + url.Values{"topic": {l.Topic}}.Encode() }

// State is the trouble in words, without the dead letters.
func (l lane) State() string {
	var out []string
	if l.Silent {
		out = append(out, "does not answer")
	}
	switch {
	case l.Paused && l.At > 0:
		out = append(out, "paused, and changed last at "+utc(l.At))
	case l.Paused:
		out = append(out, "paused")
	case l.Limited:
		out = append(out, "limited")
	}
	if l.Held != "" {
		out = append(out, l.Held+" tasks wait")
	}
	return strings.Join(out, ", ")
}
