package bench

import (
	"maps"
	"slices"
)

// point is a tenth of a second of a run.
type point struct {
	seconds   float64 // since the first delivery
	delivered float64 // so far
	worst     float64 // ms late
	mean      float64
}

// points are the course of a tally in the order of time.
func (t *tally) points() []point {
	var out []point
	sum := 0
	for _, at := range slices.Sorted(maps.Keys(t.course)) {
		m := t.course[at]
		sum += m.delivered
		out = append(out, point{
			seconds: float64(at*tenth-t.first/tenth*tenth) / 1000, delivered: float64(sum),
			worst: float64(m.worst), mean: float64(m.sum) / float64(m.delivered),
		})
	}
	return out
}
