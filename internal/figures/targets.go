package figures

import (
	"cmp"
	"encoding/json"
	"maps"
	"slices"
	"strings"
)

// Figures by target share a minute's document, and so its room and its way. Any caller makes names
// of targets, up to 249 bytes each. So a document has the busiest and the sickest targets only, as
// many as there is room for. Each of both lists has room that the other cannot take: many sick
// targets never hide the busy ones.

// Deliveries are those to a target in some time, by lateness: below a second, from a second on, and
// from a minute on. Dead are its dead letters of dispatchers.
type Deliveries struct{ InTime, Late, VeryLate, Dead int64 }

// Sent is how many deliveries there were.
func (d Deliveries) Sent() int64 { return d.InTime + d.Late + d.VeryLate }

// Bad is how many tasks were late, or died.
func (d Deliveries) Bad() int64 { return d.Late + d.VeryLate + d.Dead }

// Plus returns the sum of both.
func (d Deliveries) Plus(o Deliveries) Deliveries {
	return Deliveries{d.InTime + o.InTime, d.Late + o.Late, d.VeryLate + o.VeryLate, d.Dead + o.Dead}
}

func (d Deliveries) sane() bool {
	return fits(d.InTime) && fits(d.Late) && fits(d.VeryLate) && fits(d.Dead)
}

// MaxTargets is how many busy targets a document has, and how many sick ones. A sum of documents
// has up to ten times as many.
const MaxTargets = 10

// Busiest returns up to most names with deliveries, the busiest first.
func Busiest(of map[string]Deliveries, most int) []string { return top(of, Deliveries.Sent, most) }

// Sickest returns up to most names with late or dead tasks, those with most of them first.
func Sickest(of map[string]Deliveries, most int) []string { return top(of, Deliveries.Bad, most) }

func top(of map[string]Deliveries, by func(Deliveries) int64, most int) []string {
	var names []string
	for name, d := range of {
		if by(d) > 0 {
			names = append(names, name)
		}
	}
	slices.SortFunc(names, func(a, b string) int {
		return cmp.Or(cmp.Compare(by(of[b]), by(of[a])), strings.Compare(a, b))
	})
	return names[:min(len(names), most)]
}

// Minute is the work of a minute.
type Minute struct {
	Counts
	Targets map[string]Deliveries // some of them
}

// Plus returns the sum of both.
func (m Minute) Plus(o Minute) Minute {
	out := Minute{m.Counts.Plus(o.Counts), map[string]Deliveries{}}
	maps.Copy(out.Targets, m.Targets)
	for name, d := range o.Targets {
		out.Targets[name] = out.Targets[name].Plus(d)
	}
	if len(out.Targets) > 20*MaxTargets {
		keep := map[string]bool{}
		for _, name := range slices.Concat(Busiest(out.Targets, 10*MaxTargets), Sickest(out.Targets, 10*MaxTargets)) {
			keep[name] = true
		}
		maps.DeleteFunc(out.Targets, func(name string, _ Deliveries) bool { return !keep[name] })
	}
	return out
}

type minuteDocument struct {
	Version int `json:"v"`
	Counts
	Targets []targetDocument `json:"targets,omitempty"`
}

type targetDocument struct {
	Name string   `json:"t"`
	N    [4]int64 `json:"n"` // in the order of Deliveries
}

func (m Minute) encode() []byte {
	doc := minuteDocument{Version: version, Counts: m.Counts}
	room := MaxMinute - len(encode(doc)) - len(`,"targets":[]`)
	taken := map[string]bool{}
	take := func(names []string, room int) (used int) {
		for _, name := range names {
			d := m.Targets[name]
			one := targetDocument{name, [4]int64{d.InTime, d.Late, d.VeryLate, d.Dead}}
			size := len(encode(one)) + 1
			if taken[name] || used+size > room {
				continue
			}
			used, taken[name] = used+size, true
			doc.Targets = append(doc.Targets, one)
		}
		return used
	}
	busiest := Busiest(m.Targets, MaxTargets)
	room -= take(busiest, room/2)
	room -= take(Sickest(m.Targets, MaxTargets), room)
	take(busiest, room)
	return encode(doc)
}

// ParseMinute reads a document of a minute. false: the document is of another version, or damaged.
func ParseMinute(data []byte) (Minute, bool) {
	var doc minuteDocument
	if err := json.Unmarshal(data, &doc); err != nil || doc.Version != version || !doc.sane() {
		return Minute{}, false
	}
	out := Minute{doc.Counts, map[string]Deliveries{}}
	for _, t := range doc.Targets {
		d := Deliveries{t.N[0], t.N[1], t.N[2], t.N[3]}
		if !d.sane() {
			return Minute{}, false
		}
		out.Targets[t.Name] = out.Targets[t.Name].Plus(d)
	}
	return out, true
}
