package console

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"math"
	"math/bits"
	"net/url"
	"slices"
	"strings"

	"github.com/notyet/notyet/api"
	"github.com/notyet/notyet/deadletter"
)

// lane is a target below the river, on the same scale of time.
type lane struct {
	Topic      string
	Silent     bool // it does not answer
	Paused     bool
	Limited    bool
	At         int64  // when its policy was changed last, Unix ms; 0: not known
	Held       string // how many tasks wait; "": not known
	Dead       int
	Last       int64 // when the latest of them died, Unix ms
	Dots       []deadDot
	From       int // x of its pause
	Width      int
	Sent, Late int64 // deliveries that are known, and the late ones
	Flow       []flow
	until      int64 // when the pause ends, Unix ms; 0: when somebody resumes it
	died       int64 // as the traffic has it
	columns    map[int64]api.TrafficMinute
	v          *river
}

// deadDot is some time in which tasks of a lane have died.
type deadDot struct {
	X, Count int
	from     string // on the clock
}

// R is its radius.
func (d deadDot) R() int { return 2 + min(bits.Len(uint(d.Count)), 5) }

// Says is the dot in words.
func (d deadDot) Says() string { return d.from + ": " + digits(int64(d.Count)) + " dead" }

// flow is the deliveries of a class, as the line of a path.
type flow struct{ Class, Line string }

// lanes are the targets with most trouble, then those with most traffic.
type lanes struct {
	Lanes  []lane
	More   bool // there are other targets in trouble
	Looked int  // how many dead letters were looked at
	Older  bool // there may be others in this time
}

const (
	// shownLanes leaves room on a page of 60 kB, of which the river takes 40.
	shownLanes = 10
	// laneNames is how many bytes their names have, each of which stands in several links.
	laneNames = 300
	// lanePolicies is how many policies are read, each with a count of what is held.
	lanePolicies = 20
	laneLetters  = 200
	// laneCells is how many dots the time before now has room for, and flowColumns how many columns
	// of deliveries.
	laneCells, flowColumns = 6, 12
	laneHeight             = 16
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
	out = newLanes(v, all, policies.Targets, letters.Letters.Letters)
	looked := letters.Letters.Letters
	out.Looked = len(looked)
	out.Older = letters.Cursor != "" && (len(looked) == 0 || looked[len(looked)-1].DiedAt > v.begin)
	return out, cmp.Or(errs...)
}

// newLanes puts targets that do not answer first, then paused ones, then those with most late and
// dead tasks, then those with most deliveries.
func newLanes(v *river, all *api.Overview, policies []api.TargetPolicy, letters []deadletter.Letter) (out lanes) {
	byTopic := map[string]*lane{}
	of := func(topic string) *lane {
		if byTopic[topic] == nil {
			byTopic[topic] = &lane{Topic: topic, v: v}
		}
		return byTopic[topic]
	}
	for _, topic := range all.Targets.Unresponsive {
		of(topic).Silent = true
	}
	for _, topic := range all.Targets.Limited {
		of(topic).Limited = true
	}
	for _, topic := range all.Targets.Paused {
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
	most := int64(1)
	for _, t := range all.Traffic {
		most = max(most, of(t.Topic).flow(t.Series))
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
		return cmp.Or(cmp.Compare(first(a.Silent), first(b.Silent)), cmp.Compare(first(a.Paused), first(b.Paused)), cmp.Compare(b.bad(), a.bad()), cmp.Compare(b.Sent, a.Sent), strings.Compare(a.Topic, b.Topic))
	})
	show, bytes := 0, 0
	for show < min(len(out.Lanes), shownLanes) && bytes < laneNames {
		bytes += len(url.QueryEscape(out.Lanes[show].Topic))
		show++
	}
	out.More = all.Targets.MoreUnresponsive > 0 || slices.ContainsFunc(out.Lanes[show:], func(l lane) bool { return l.Silent || l.Paused || l.Limited || l.bad() > 0 })
	out.Lanes = out.Lanes[:show]
	for i := range out.Lanes {
		out.Lanes[i].draw(most)
	}
	return out
}

// bad is how many tasks were late or died. The dead are in both lists, in each as far as it goes.
func (l *lane) bad() int64 { return l.Late + max(l.died, int64(l.Dead)) }

// flow adds the deliveries, and returns those of the busiest column.
func (l *lane) flow(series []api.TrafficMinute) (most int64) {
	l.columns = map[int64]api.TrafficMinute{}
	for _, m := range series {
		if m.At < l.v.begin || m.At >= l.v.now+l.v.step {
			continue
		}
		l.Sent, l.Late, l.died = l.Sent+m.Delivered, l.Late+m.Late, l.died+m.Dead
		c := l.columns[(m.At-l.v.begin)/l.v.column()]
		c.Delivered, c.Late, c.VeryLate = c.Delivered+m.Delivered, c.Late+m.Late, c.VeryLate+m.VeryLate
		l.columns[(m.At-l.v.begin)/l.v.column()] = c
		most = max(most, c.Delivered)
	}
	return most
}

// column is the time that a column of deliveries stands for, in ms.
func (v *river) column() int64 { return max(int64(v.Now/barWidth/flowColumns), 1) * v.step }

// draw makes the columns' lines, with heights as those of the river.
func (l *lane) draw(most int64) {
	lines, width := map[string]string{}, l.v.column()/l.v.step*barWidth
	for _, i := range slices.Sorted(maps.Keys(l.columns)) {
		if c := l.columns[i]; c.Delivered > 0 {
			b := bar{ended: true, p99: p99(c)}
			height := max(1, int(math.Sqrt(float64(c.Delivered)/float64(most))*laneHeight))
			lines[b.class()] += fmt.Sprintf("M%d %dV%dh%dV%d", i*width, laneHeight, laneHeight-height, width-1, laneHeight)
		}
	}
	for _, class := range slices.Sorted(maps.Keys(lines)) {
		l.Flow = append(l.Flow, flow{class, lines[class]})
	}
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
		l.Dots = append(l.Dots, deadDot{X: x, from: v.clock(from, "15:04")})
	}
	l.Dots[i].Count++
}

// Name is the target, of a long name its beginning.
func (l lane) Name() string { return brief(visible(l.Topic), 60) }

// Letters are the dead letters of the lane.
func (l lane) Letters() string {
	return "/deadletters?" + url.Values{"topic": {l.Topic}, "since": {digitsOf(l.v.begin)}}.Encode()
}

// Tasks are those to come.
func (l lane) Tasks() string { return "/find?" + url.Values{"topic": {l.Topic}}.Encode() }

// River is the first page with the river of this target alone.
func (l lane) River() string { return "/?" + url.Values{"topic": {l.Topic}}.Encode() }

// State is the lane in words, without the dead letters.
func (l lane) State() string {
	var out []string
	if l.Silent {
		out = append(out, "does not answer")
	}
	switch {
	case l.Paused && l.At > 0:
		out = append(out, "paused, and changed last at "+clockIn(l.v.zone, l.At))
	case l.Paused:
		out = append(out, "paused")
	case l.Limited:
		out = append(out, "limited")
	}
	switch {
	case l.Held == "" || l.Held == "0" && !l.Paused:
	case l.Held == "1":
		out = append(out, "1 task waits")
	default:
		out = append(out, l.Held+" tasks wait")
	}
	if l.Sent > 0 {
		out = append(out, "at least "+digits(l.Sent)+" delivered")
	}
	if l.Late > 0 {
		out = append(out, digits(l.Late)+" of them late")
	}
	return strings.Join(out, ", ")
}
