package api

import (
	"maps"
	"slices"
	"time"

	"github.com/notyet/notyet/internal/figures"
	"github.com/notyet/notyet/schemas"
	"github.com/notyet/notyet/store/admin"
)

// Traffic is what one target has received lately.
type Traffic struct {
	Topic  string          `json:"topic"`
	Series []TrafficMinute `json:"series" doc:"oldest first; a minute is left out in which the target was not among the busiest or sickest ones of a dispatcher"`
}

// TrafficMinute is the work of a minute for one target.
type TrafficMinute struct {
	At        int64 `json:"at"             doc:"when it began, by the database's clock, Unix ms"`
	Delivered int64 `json:"delivered"      doc:"deliveries that were acknowledged"`
	Late      int64 `json:"late"           doc:"those of them that were late by 1 s or more"`
	VeryLate  int64 `json:"very_late"      doc:"those of them that were late by a minute or more"`
	Dead      int64 `json:"dead"           doc:"tasks that became dead letters at their delivery"`
}

// shownTraffic is for how many targets an overview tells the traffic.
const shownTraffic = 10

// traffic returns the traffic of one target, or of those with most trouble and most traffic, in
// this order. Sick targets take up to half of the room if there are enough busy ones.
func (c *condition) traffic(topic string, minutes int64, allowed func(topic string) bool) []Traffic {
	newest := last(c.now)
	oldest := newest - min(minutes, admin.FiguresMemory) + 1
	sums, own, name := map[string]figures.Deliveries{}, map[string]bool{}, schemas.TargetName(topic)
	shown := func(target string) bool {
		if _, known := own[target]; !known {
			own[target] = (topic == "" || target == name) && (allowed == nil || allowed(target))
		}
		return own[target]
	}
	for minute, of := range c.minutes {
		for target, d := range of.Targets {
			if minute >= oldest && minute <= newest && shown(target) {
				sums[target] = sums[target].Plus(d)
			}
		}
	}
	sickest := figures.Sickest(sums, shownTraffic)
	names := slices.Clone(sickest[:min(len(sickest), shownTraffic/2)])
	for _, name := range slices.Concat(figures.Busiest(sums, shownTraffic), sickest) {
		if len(names) < shownTraffic && !slices.Contains(names, name) {
			names = append(names, name)
		}
	}
	out := []Traffic{}
	at := slices.Sorted(maps.Keys(c.minutes))
	for _, name := range names {
		of := Traffic{Topic: name}
		for _, minute := range at {
			if d, ok := c.minutes[minute].Targets[name]; ok && minute >= oldest && minute <= newest {
				of.Series = append(of.Series, TrafficMinute{At: minute * time.Minute.Milliseconds(), Delivered: d.Sent(), Late: d.Late + d.VeryLate, VeryLate: d.VeryLate, Dead: d.Dead})
			}
		}
		out = append(out, of)
	}
	return out
}
