package timer

import (
	"slices"
	"time"
)

// Misfire is the treatment of missed runs. "" is MisfireOnce.
type Misfire string

const (
	MisfireOnce Misfire = "once" // the latest of the missed is delivered
	MisfireSkip Misfire = "skip" // none is
	MisfireAll  Misfire = "all"  // each is, of one outage at most the latest MostMissed
)

func (m Misfire) valid() bool {
	return m == "" || m == MisfireOnce || m == MisfireSkip || m == MisfireAll
}

// MostMissed is how many of the missed runs of one outage are looked at: the latest ones.
const MostMissed = 1000

// DropFrom returns the due time from which on a missed run may be dropped: if it cannot be released
// within the tolerance of that time. With skip it is the run's own due time, with once that of the
// following run. 0: the run is never dropped. With skip nothing more is asked; otherwise a made run
// is dropped for a later one on its way, see StandIns.
//
// It follows from the definition alone, so nothing has to survive an outage for it.
func (s Schedule) DropFrom(topic, id string, run int64) int64 {
	following := run
	switch s.def.Misfire {
	case MisfireSkip:
	case MisfireAll:
		if s.def.Every == 0 {
			return 0
		}
		following = run + MostMissed*s.def.Every.Milliseconds()
	default:
		var ok bool
		if following, ok = s.Next(run); !ok {
			return 0
		}
	}
	if s.def.Until != 0 && following > s.def.Until {
		return 0
	}
	return max(s.Due(topic, id, following), s.Due(topic, id, run))
}

// Dropped reports whether a run is to be dropped at an instant, Unix ms, given its DropFrom.
func Dropped(dropFrom, now int64, tolerance time.Duration) bool {
	return dropFrom != 0 && now > dropFrom+tolerance.Milliseconds()
}

// mostStandIns is how many possible stand-ins for a missed run are looked at.
const mostStandIns = 4

// StandIns returns made runs that may be delivered in place of an earlier missed one, the best
// first: runs due at missed at the latest, and before the first unmade run. With all, they are the
// first runs left by an outage, none if the run is one; otherwise the latest.
func (s Schedule) StandIns(topic, id string, run, next, missed int64) (out []int64) {
	last := min(next-1, missed)
	if s.def.Misfire == MisfireAll {
		at, ok := s.Latest(run, missed, MostMissed)
		for ; ok && run < at && at <= last && len(out) < mostStandIns; at, ok = s.Next(at) {
			out = append(out, at)
		}
		return out
	}
	n := mostStandIns
	if s.def.Jitter > 0 {
		n += crowd // the latest may still wait for their jitter
	}
	at, ok := s.Latest(run+1, last, n)
	for ; ok && at <= last; at, ok = s.Next(at) {
		if s.Due(topic, id, at) <= missed {
			out = append(out, at)
		}
	}
	slices.Reverse(out)
	return out[:min(len(out), mostStandIns)]
}

// Latest returns the first of the latest n runs in [from, to], both in Unix ms. It returns false if
// there is none. It takes a bounded number of steps, however long the span is.
func (s Schedule) Latest(from, to int64, n int) (int64, bool) {
	first, ok := s.Next(from - 1)
	if !ok || first > to {
		return 0, false
	}
	if s.def.Every > 0 {
		every := s.def.Every.Milliseconds()
		last := to
		if s.def.Until != 0 {
			last = min(to, s.def.Until)
		}
		last = first + (last-first)/every*every
		return max(first, last-int64(n-1)*every), true
	}
	if s.atMost(first, to, n) {
		return first, true
	}
	// Runs are whole seconds apart. Find a start behind which there are at most n, and one behind
	// which there are more, and then the place between the two.
	const second = int64(time.Second / time.Millisecond)
	more, most := first, to
	for span := int64(n) * second; to-span > first; span *= 2 {
		if !s.atMost(to-span, to, n) {
			more = to - span
			break
		}
		most = to - span
	}
	for most-more > 1 {
		if middle := more + (most-more)/2; s.atMost(middle, to, n) {
			most = middle
		} else {
			more = middle
		}
	}
	run, ok := s.Next(most - 1)
	return run, ok && run <= to
}

// atMost reports whether there are at most n runs in [from, to]. It looks at n+1 of them at most.
func (s Schedule) atMost(from, to int64, n int) bool { return s.Count(from, to+1, n) <= n }
