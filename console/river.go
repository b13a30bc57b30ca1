package console

import (
	"fmt"
	"math"
	"net/url"
	"slices"
	"strconv"
	"time"

	"github.com/notyet/notyet/api"
)

// reach is how far the river goes, in minutes, and how many of them a bar stands for.
type reach struct {
	Name              string
	back, ahead, step int64
}

// reaches are the views to choose from, the first one by default. Figures of deliveries are kept
// for six hours.
var reaches = []reach{{"2 hours", 120, 120, 1}, {"24 hours", 360, 1440, 10}, {"7 days", 360, 7*1440 + 360, 60}}

// reachesOfTimer are those of the river of one timer, without a choice.
var reachesOfTimer = []reach{{"", 120, 120, 1}, {"", 1440, 1440, 10}, {"", 7 * 1440, 7 * 1440, 60}}

// reachOfTimer has a few runs of a timer that runs every so many ms.
func reachOfTimer(every int64) reach {
	for _, r := range reachesOfTimer {
		if r.back*60_000 >= 4*every {
			return r
		}
	}
	return reachesOfTimer[len(reachesOfTimer)-1]
}

func reachOf(name string) reach {
	for _, r := range reaches {
		if r.Name == name {
			return r
		}
	}
	return reaches[0]
}

// river is what was delivered and what falls due, by time: a bar for each step, in units of the
// viewBox.
type river struct {
	Bars          []bar
	Rows          []riverRow
	Width, Height int
	Now           int    // x
	Known         bool   // Delivered is
	Note          string // about what is known of deliveries
	Most          int64
	Quarter       int64 // half as high as Most
	Coming        int64 // falls due
	Marks         []mark
	Step          string
	atLeast       bool              // of the p99, only the class is known
	said          map[string]string // of bars by their class; nil: of deliveries
	begin, step   int64             // ms
	now           int64             // Unix ms, a multiple of the step
	zone          *time.Location
}

type bar struct {
	X, Y, Width, Height int
	Class               string // comes, sent, late, very-late
	Path, Says          string
	At, Count           int64
	ended               bool
	p99                 float64 // of its latest deliveries, ms
}

type mark struct {
	X    int
	Text string
}

// riverRow is a part of the river in words.
type riverRow struct {
	From, To         int64 // Unix ms
	Delivered, Comes int64
	Path             string
}

const (
	barWidth    = 5
	riverHeight = 120
	riverRows   = 12
	riverMarks  = 6
)

// newRiver has no bars yet. now is a Unix time in ms, and the zone is of its clocks.
func newRiver(now int64, r reach, zone *time.Location) *river {
	step := r.step * 60_000
	at := now - now%step
	v := &river{Height: riverHeight, zone: zone, step: step, now: at, begin: at - r.back*60_000, Step: map[int64]string{1: "minute", 10: "ten minutes", 60: "hour"}[r.step]}
	v.Width = int((r.back+r.ahead)/r.step) * barWidth
	v.Now = int(r.back/r.step) * barWidth
	form := "15:04"
	if r.ahead > 1440 {
		form = "2 Jan 15:04"
	}
	for i := range riverMarks {
		x := v.Width * i / riverMarks / barWidth * barWidth
		v.Marks = append(v.Marks, mark{x, v.clock(v.timeOf(x), form)})
	}
	return v
}

func (v *river) timeOf(x int) int64 { return v.begin + int64(x/barWidth)*v.step }

func (v *river) end() int64 { return v.timeOf(v.Width) }

// flow adds the deliveries of the minutes before now.
func (v *river) flow(minutes []api.Minute) {
	v.Known = true
	for _, m := range minutes {
		n := int64(math.Round(m.Delivered * 60))
		if m.At < v.begin || m.At >= v.now+v.step || n == 0 {
			continue
		}
		b := v.bar(m.At, true)
		b.Count += n
		b.p99 = max(b.p99, value(m.LatenessP99))
	}
}

// p99 is the class of the latest of a hundred deliveries, in ms.
func p99(m api.TrafficMinute) float64 {
	switch {
	case m.VeryLate*100 > m.Delivered:
		return 60_000
	case m.Late*100 > m.Delivered:
		return 1000
	}
	return 0
}

// flowOf adds the deliveries to one target.
func (v *river) flowOf(all []api.Traffic) {
	var minutes []api.Minute
	for _, of := range all {
		for _, m := range of.Series {
			minutes = append(minutes, api.Minute{At: m.At, Work: api.Work{Delivered: float64(m.Delivered) / 60, LatenessP99: new(p99(m))}})
		}
	}
	v.atLeast = true
	v.flow(minutes)
}

// ended adds the tasks that were delivered, at their due times. It is not known how late they were.
func (v *river) ended(tasks []api.Task) {
	var minutes []api.Minute
	for _, t := range tasks {
		if t.State == "delivered" || t.State == "succeeded" {
			minutes = append(minutes, api.Minute{At: t.Due, Work: api.Work{Delivered: 1.0 / 60}})
		}
	}
	v.atLeast = true
	v.flow(minutes)
}

// graded are the kinds of runs as lateness, in ms: a bar has the colour of its worst run.
var graded = map[string]float64{"late": 1000, "held": 1000, "missed": 60_000, "failed": 60_000, "unknown": 60_000}

// runs adds a timer's runs, of which there are more from an instant on; 0: there are none.
func (v *river) runs(all []api.AuditedRun, more int64) {
	for i := range all {
		run := &all[i]
		kind := kindOf(run)
		switch {
		case run.State == "not_expected" || run.At < v.begin:
		case run.At >= v.now && (run.State == "coming" || kind == "held"):
			v.come([]api.ForecastStep{{At: run.At, Count: 1}})
		case run.At < v.end():
			b := v.bar(run.At, true)
			b.Count++
			b.p99 = max(b.p99, graded[kind])
		}
	}
	if more > 0 && more < v.end() {
		v.Note = "Runs from " + v.clock(more, "15:04") + " on are not shown: there are many."
	}
	v.said = map[string]string{"comes": "to come", "sent": "sent", "late": "run, some late or held", "very-late": "run, some missed or failed"}
	v.draw("", "")
}

// come adds the tasks that fall due.
func (v *river) come(steps []api.ForecastStep) {
	for _, s := range steps {
		if s.At < v.now || s.At >= v.end() || s.Count <= 0 {
			continue
		}
		v.bar(s.At, false).Count += s.Count
		v.Coming += s.Count
	}
}

// bar returns the bar of a time, of what has ended or of what comes.
func (v *river) bar(at int64, ended bool) *bar {
	x := int((at-v.begin)/v.step) * barWidth
	for i := range v.Bars {
		if b := &v.Bars[i]; b.X == x && b.ended == ended {
			return b
		}
	}
	v.Bars = append(v.Bars, bar{X: x, Width: barWidth - 1, At: v.timeOf(x), ended: ended})
	return &v.Bars[len(v.Bars)-1]
}

// barGroup are the bars of a class, which is written once: the page has to stay small.
type barGroup struct {
	Class string
	Bars  []bar
}

// Groups are the bars by their classes.
func (v *river) Groups() (out []barGroup) {
	for _, b := range v.Bars {
		i := slices.IndexFunc(out, func(g barGroup) bool { return g.Class == b.Class })
		if i < 0 {
			i, out = len(out), append(out, barGroup{Class: b.Class})
		}
		out[i].Bars = append(out[i].Bars, b)
	}
	return out
}

// Line is the bar as a line upwards.
func (b bar) Line() string {
	return fmt.Sprintf("M%d %dV%d", b.X+b.Width/2, riverHeight, b.Y)
}

// class is the colour of a bar. Deliveries are late from a second on, and very late from a minute
// on.
func (b *bar) class() string {
	switch {
	case !b.ended:
		return "comes"
	case b.p99 < 1000:
		return "sent"
	case b.p99 < 60_000:
		return "late"
	}
	return "very-late"
}

// draw gives the bars their heights, words and links to tasks with the topic and the tag. A height
// grows with the square root of the number, so that one burst leaves the others to be seen.
func (v *river) draw(topic, tag string) {
	for _, b := range v.Bars {
		v.Most = max(v.Most, b.Count)
	}
	v.Quarter = v.Most / 4
	rows := make([]riverRow, riverRows)
	for i := range rows {
		rows[i].From, rows[i].To = v.timeOf(v.Width*i/riverRows), v.timeOf(v.Width*(i+1)/riverRows)
		rows[i].Path = v.path(topic, tag, rows[i].From, rows[i].To, rows[i].To <= v.now)
	}
	for i := range v.Bars {
		b := &v.Bars[i]
		b.Height = max(2, int(math.Sqrt(float64(b.Count)/float64(v.Most))*riverHeight))
		b.Y = riverHeight - b.Height
		b.Class, b.Path = b.class(), v.path(topic, tag, b.At, b.At+v.step, b.ended)
		row := &rows[b.X*riverRows/v.Width]
		b.Says = v.clock(b.At, "15:04") + ": " + digits(b.Count)
		switch {
		case v.said != nil:
			b.Says += " " + v.said[b.Class]
		case b.ended && v.atLeast:
			b.Says += " delivered" + map[string]string{"late": ", p99 over 1 s late", "very-late": ", p99 over 1 min late"}[b.Class]
			row.Delivered += b.Count
		case b.ended:
			b.Says += " delivered, p99 " + lasting(b.p99) + " late"
			row.Delivered += b.Count
		default:
			b.Says += " fall due"
			row.Comes += b.Count
		}
	}
	v.Rows = rows
}

// path is the tasks of a bar.
func (v *river) path(topic, tag string, from, to int64, ended bool) string {
	q := url.Values{"from": {strconv.FormatInt(from, 10)}, "to": {strconv.FormatInt(to, 10)}}
	set(q, "topic", topic)
	set(q, "tag", tag)
	if ended {
		q.Set("ended", "on")
	}
	return "/find?" + q.Encode()
}

func (v *river) clock(ms int64, form string) string {
	return time.UnixMilli(ms).In(v.zone).Format(form)
}
