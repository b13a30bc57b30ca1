package history

import "math/rand/v2"

// Timed is a request and when it is sent, Unix ms.
type Timed struct {
	At int64
	Op Op
}

// Storm returns many requests of every kind about one identity, in any order, most of them about when a task is due. base has
// the identity and the settings of its tasks; the first request is sent at at. Only the order of all of them can judge a storm.
func Storm(r *rand.Rand, base Op, at int64) (out []Timed) {
	base.Kind, base.Version, base.AllEvents, base.Storm = Schedule, -1, true, true
	combine, merges, versions := []string{Append, Sum, ""}[r.IntN(3)], r.IntN(3) == 0, r.IntN(2) == 0
	due := int64(0)
	for range 3 + r.IntN(8) {
		o := base
		if versions && r.IntN(3) > 0 {
			o.Version = r.Int64N(6)
		}
		switch p := r.IntN(100); {
		case p < 20 && p%3 == 0:
			o.Kind = Stop
		case p < 20:
			o.Kind = Cancel
		case p < 32:
			o.Kind = Fire
		case merges:
			o.IfExists, o.Merge, o.MaxWait = Merge, combine, r.Int64N(2)*800
		case p < 50:
			o.IfExists = Keep
		case p < 62:
			o.IfExists = Once
		}
		if o.Kind == Schedule { // due times within a storm differ, so that a due time names its request
			due = max(due, at) + 1 + r.Int64N(3000)
			o.Due = due
		}
		out = append(out, Timed{at, o})
		switch r.IntN(6) {
		case 0:
			at += r.Int64N(20)
		case 1, 2:
			at = max(at, due-50+r.Int64N(101))
		case 3:
			at = max(at, due) + r.Int64N(1500)
		default:
			at += r.Int64N(max(due-at, 1))
		}
	}
	return out
}
