package timer

import (
	"strings"
	"time"

	cron "github.com/netresearch/go-cron"
)

// Cron is a parsed cron expression in a time zone. The library only computes calendars, of wall
// clock times read as UTC. This type decides what daylight saving does to them.
type Cron struct {
	calendar *cron.SpecSchedule
	zone     *time.Location
	// fixed: neither the hour nor the minute field has a star. Such an expression means local times
	// of day: a run whose time daylight saving skips happens at the end of the gap, and one whose
	// time comes twice happens the first time only. Any other expression follows elapsed time.
	fixed bool
}

// ParseCron parses an expression of 5 fields (minute, hour, day of month, month, day of week) or 6
// (seconds first), or a nickname such as @daily.
func ParseCron(expression string, zone *time.Location) (Cron, error) {
	return readCron(expression, zone, false)
}

func readCron(expression string, zone *time.Location, stored bool) (Cron, error) {
	if stored {
		expression = asStored(expression)
	}
	fields, err := splitCron(expression)
	if err != nil {
		return Cron{}, err
	}
	calendar, err := calendarOf(fields, stored)
	return Cron{calendar: calendar, zone: zone, fixed: !strings.Contains(fields[1]+fields[2], "*")}, err
}

// Next returns the first run after an instant. It returns false if there is none within 45 years.
func (c Cron) Next(after time.Time) (time.Time, bool) {
	at := after
	for {
		p := periodOf(at, c.zone)
		wall := asUTC(at, p.offset)
		if c.fixed {
			wall = later(wall, p.repeatedUntil.Add(-time.Second))
		}
		for {
			tick := c.calendar.Next(wall)
			if tick.IsZero() {
				return time.Time{}, false
			}
			run := tick.Add(-p.offset)
			if p.end.IsZero() || run.Before(p.end) {
				return run, true
			}
			next := periodOf(p.end, c.zone)
			if c.fixed && tick.Before(asUTC(p.end, next.offset)) {
				return p.end, true // the gap skips its local time
			}
			// Periods that end more than a day before the tick do not matter, unless they repeat
			// earlier times: then an earlier tick may come in them once more.
			if far := tick.Add(-26 * time.Hour); far.After(p.end) && (c.fixed || next.offset >= p.offset) {
				at = far
				break
			}
			wall = asUTC(p.end, next.offset).Add(-time.Second)
			if c.fixed {
				wall = later(wall, next.repeatedUntil.Add(-time.Second))
			}
			p = next
		}
	}
}

// densest returns how many runs lie within a span of at most a day on the expression's busiest
// days, whenever those come.
func (c Cron) densest(span time.Duration) int {
	const day = 24 * 60 * 60
	var runs [2*day + 1]int // before each second of two days in a row
	for second := range 2 * day {
		runs[second+1] = runs[second]
		if c.atTime(second % day) {
			runs[second+1]++
		}
	}
	most, length := 0, int(span/time.Second)+1 // both ends count
	for from := range day {
		most = max(most, runs[min(from+length, 2*day)]-runs[from])
	}
	return most
}

// atTime reports whether the expression has a run at a second of its days.
func (c Cron) atTime(second int) bool {
	has := func(field uint64, value int) bool { return field&(1<<value) != 0 }
	return has(c.calendar.Second, second%60) && has(c.calendar.Minute, second/60%60) && has(c.calendar.Hour, second/3600)
}

// Shifted tells whether a run stands at a gap's end: daylight saving skips its local time.
func (c Cron) Shifted(run time.Time) bool {
	wall := asUTC(run, periodOf(run, c.zone).offset)
	return !c.calendar.Next(wall.Add(-time.Second)).Equal(wall)
}

// period is a span of time in which a zone's offset does not change.
type period struct {
	offset time.Duration
	end    time.Time // first instant after it; zero: it has no end
	// repeatedUntil is the wall clock time, read as UTC, until which this period repeats the last.
	repeatedUntil time.Time
}

func periodOf(at time.Time, zone *time.Location) period {
	local := at.In(zone)
	start, end := local.ZoneBounds()
	p := period{offset: offsetOf(local), end: end}
	// On 31 December of leap years after 2037 package time errs on the end (golang/go#81583).
	if !end.IsZero() && !end.After(at) {
		p.end = at.Add(24 * time.Hour)
	}
	if !start.IsZero() && !start.After(at) {
		before := offsetOf(start.Add(-time.Nanosecond).In(zone))
		p.repeatedUntil = asUTC(start, before)
	}
	return p
}

func offsetOf(local time.Time) time.Duration {
	_, seconds := local.Zone()
	return time.Duration(seconds) * time.Second
}

// asUTC returns the wall clock time of an instant at an offset, read as UTC.
func asUTC(at time.Time, offset time.Duration) time.Time { return at.UTC().Add(offset) }

func later(a, b time.Time) time.Time {
	if b.After(a) {
		return b
	}
	return a
}
