// Package timer computes when a timer runs. A definition goes in; instants come out. It needs no
// clock, database or Kafka.
package timer

import (
	"errors"
	"fmt"
	"math"
	"strconv"
	"strings"
	"sync"
	"time"
	_ "time/tzdata" // zones are the same on machines that have none

	"github.com/cespare/xxhash/v2"
)

// Definition is the timing in a timer's headers. Times are Unix ms. It is stored as JSON, so its
// names must not change.
type Definition struct {
	Cron    string        `json:"cron,omitempty"`    // an expression; exactly one of Cron and Every
	Every   time.Duration `json:"every,omitempty"`   // at least 1 s; runs at From + k × Every
	Zone    string        `json:"zone,omitempty"`    // IANA name; "" is UTC
	From    int64         `json:"from"`              // first instant at which a run may happen
	Until   int64         `json:"until,omitempty"`   // last such instant; 0: no end
	Jitter  time.Duration `json:"jitter,omitempty"`  // each run is due up to this much later
	Misfire Misfire       `json:"misfire,omitempty"` // what becomes of missed runs
	Alone   bool          `json:"alone,omitempty"`   // a run is dropped while an earlier one is unfinished
	Set     int64         `json:"set,omitempty"`     // since when its runs lie so; 0: not known. Equal to From: nobody has said where runs begin
}

const (
	// ShortestEvery is the shortest interval between runs.
	ShortestEvery = time.Second
	// LongestJitter bounds the jitter, and with it how long a run can be pending.
	LongestJitter = 24 * time.Hour
	// freeJitter is a jitter that suits every timer: at one run a second, 900 runs are pending.
	freeJitter = 15 * time.Minute
	// crowd is how many runs of one timer may be pending within its jitter.
	crowd = 900
)

// Schedule is a valid definition.
type Schedule struct {
	def  Definition
	cron Cron
}

// Error names the wrong field of a definition, and how to correct it.
type Error struct {
	Field   string // cron, every, timezone, until, jitter, misfire
	Problem string
}

func (e *Error) Error() string { return e.Field + " " + e.Problem }

// New checks a definition. It must have at least one run.
func New(def Definition) (Schedule, error) {
	s, err := read(def, false)
	if err != nil {
		return s, err
	}
	if _, ok := s.Next(def.From - 1); !ok {
		if def.Cron != "" && def.Until != 0 {
			return s, &Error{"cron", "has no run between from and until; move them, or correct the expression"}
		}
		return s, &Error{"cron", "never comes: correct its day and its month"}
	}
	if s.crowded() {
		return s, &Error{"jitter", fmt.Sprintf("is %v: more than %d runs would be pending at once; write at most %v, or run less often", def.Jitter, crowd, freeJitter)}
	}
	return s, nil
}

// crowded reports whether too many runs may ever lie within the jitter. The first runs do not tell:
// an expression can have few on some days, and many on others.
func (s Schedule) crowded() bool {
	switch {
	case s.def.Jitter <= freeJitter:
		return false
	case s.def.Every > 0 && s.def.Jitter/s.def.Every < crowd, s.def.Every == 0 && s.cron.densest(s.def.Jitter) <= crowd:
		return false
	}
	return !s.atMost(s.def.From, math.MaxInt64-1, crowd) // it ends before
}

// Parse reads a definition already checked by New, perhaps of an earlier version. No run is sought.
func Parse(def Definition) (Schedule, error) { return read(def, true) }

func read(def Definition, stored bool) (Schedule, error) {
	s := Schedule{def: def}
	zone, err := loadZone(def.Zone)
	switch {
	case err != nil:
		return s, &Error{"timezone", err.Error()}
	case (def.Cron == "") == (def.Every == 0):
		return s, &Error{"cron", "and every: exactly one of them says when the timer runs"}
	case def.Cron == "" && def.Every < ShortestEvery:
		return s, &Error{"every", fmt.Sprintf("is %v: it must be at least %v", def.Every, ShortestEvery)}
	case def.Every%time.Millisecond != 0:
		return s, &Error{"every", fmt.Sprintf("is %v: it must be whole milliseconds", def.Every)}
	case def.Until != 0 && def.Until < def.From:
		return s, &Error{"until", "lies before from: swap them, or leave until out"}
	case def.Jitter < 0 || def.Jitter > LongestJitter:
		return s, &Error{"jitter", fmt.Sprintf("is %v: it must be 0 to %v", def.Jitter, LongestJitter)}
	case !def.Misfire.valid():
		return s, &Error{"misfire", fmt.Sprintf("is %q: it must be once, skip or all", def.Misfire)}
	}
	if def.Cron != "" {
		if s.cron, err = readCron(def.Cron, zone, stored); err != nil {
			return s, &Error{"cron", err.Error()}
		}
	}
	return s, nil
}

// zones caches the zones: package time reads a zone's file each time.
var zones sync.Map

// loadZone reads a zone. A stored definition may have a name that requests may not have any more.
func loadZone(name string) (*time.Location, error) {
	if name == "" {
		return time.UTC, nil
	}
	if strings.EqualFold(name, "local") {
		return nil, errors.New("must be an IANA name, such as Europe/Berlin")
	}
	if known, ok := zones.Load(name); ok {
		return known.(*time.Location), nil
	}
	zone, err := time.LoadLocation(name)
	if err != nil {
		return nil, fmt.Errorf("%q is not known: use an IANA name, such as Europe/Berlin", name)
	}
	zones.Store(name, zone) // there are as many as zones, at most
	return zone, nil
}

// Reaching returns the schedule of a definition whose runs are looked for from an instant on, Unix
// ms. Without a given start, it has runs before it was set, too.
func (d Definition) Reaching(from int64) (Schedule, error) {
	if d.Set == d.From {
		d = d.before(from)
	}
	return Parse(d)
}

// Expression is Reaching with neither a first nor a last instant.
func (d Definition) Expression(from int64) (Schedule, error) {
	d = d.before(from)
	d.Until = 0
	return Parse(d)
}

// Continuing returns the definition of a timer that is set again, without a first instant, after
// another one: runs go on where they lay. An interval keeps its origin, an expression its age.
func (d Definition) Continuing(old Definition) Definition {
	if d.Cron == old.Cron && d.Every == old.Every && (d.Every > 0 || d.Zone == old.Zone && old.From <= d.From) {
		d.From, d.Set = old.From, old.Set
	}
	return d
}

// before moves From to an instant or before it; runs stay where they lie.
func (d Definition) before(from int64) Definition {
	if from < d.From {
		back := d.From - from
		if every := d.Every.Milliseconds(); every > 0 {
			back = (back + every - 1) / every * every
		}
		d.From -= back
	}
	return d
}

// Definition returns the schedule's definition.
func (s Schedule) Definition() Definition { return s.def }

// Count returns how many runs lie in [from, to), both in Unix ms, at most so many and one more.
func (s Schedule) Count(from, to int64, most int) (n int) {
	for run, ok := s.Next(from - 1); ok && run < to && n <= most; run, ok = s.Next(run) {
		n++
	}
	return n
}

// Next returns the first run after an instant, both in Unix ms. It returns false if there is none.
func (s Schedule) Next(after int64) (int64, bool) {
	after = max(after, s.def.From-1)
	var run int64
	if s.def.Every > 0 {
		every := s.def.Every.Milliseconds()
		run = s.def.From + ((after-s.def.From)/every+1)*every
		if after < s.def.From {
			run = s.def.From
		}
	} else {
		at, ok := s.cron.Next(time.UnixMilli(after))
		if !ok {
			return 0, false
		}
		run = at.UnixMilli()
	}
	return run, s.def.Until == 0 || run <= s.def.Until
}

// Shifted tells whether a run stands at a gap's end: daylight saving skips its local time.
func (s Schedule) Shifted(run int64) bool {
	return s.def.Cron != "" && s.cron.Shifted(time.UnixMilli(run))
}

// Due returns when a run of the timer is due: up to the jitter later. It depends only on the timer
// and the run, so it is the same after a restart.
func (s Schedule) Due(topic, id string, run int64) int64 {
	jitter := uint64(s.def.Jitter.Milliseconds())
	if jitter == 0 {
		return run
	}
	return run + int64(xxhash.Sum64String(fmt.Sprintf("%s\x00%s\x00%d", topic, id, run))%(jitter+1))
}

// RunID returns the id of a run's task: 14 bytes more than a timer's id, see schemas.MaxTimerIDLen.
func RunID(timer string, run int64) string { return fmt.Sprintf("%s@%d", timer, run) }

// SplitRunID is the inverse of RunID. It returns false for an id that is none of a run.
func SplitRunID(id string) (timer string, run int64, ok bool) {
	at := strings.LastIndexByte(id, '@')
	if at < 1 {
		return "", 0, false
	}
	run, err := strconv.ParseInt(id[at+1:], 10, 64)
	return id[:at], run, err == nil && RunID(id[:at], run) == id
}
