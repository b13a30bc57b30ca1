package timer

import (
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	cron "github.com/netresearch/go-cron"
)

// Cron is a parsed cron expression in a time zone. The library only computes calendars: it gets
// wall clock times, read as UTC. This type decides what daylight saving does to them.
type Cron struct {
	calendar *cron.SpecSchedule
	zone     *time.Location
	// fixed means that neither the hour nor the minute field has a star. Such an expression means
	// local times of day: a run whose time daylight saving skips happens at the end of the gap, and
	// one whose time comes twice happens the first time only. Any other expression follows elapsed
	// time.
	fixed bool
}

const (
	fieldsOfCron = cron.Second | cron.Minute | cron.Hour | cron.Dom | cron.Month | cron.Dow | cron.Extended
	// searchYears limits the search for the next run: 29 February on a given weekday can be 40
	// years away.
	searchYears = 45
)

var (
	eitherDay = cron.MustNewParser(fieldsOfCron | cron.DowOrDom).WithMaxSearchYears(searchYears)
	bothDays  = cron.MustNewParser(fieldsOfCron).WithMaxSearchYears(searchYears)
)

var nicknames = map[string]string{
	"@yearly": "0 0 1 1 *", "@annually": "0 0 1 1 *", "@monthly": "0 0 1 * *", "@weekly": "0 0 * * 0",
	"@daily": "0 0 * * *", "@midnight": "0 0 * * *", "@hourly": "0 * * * *",
}

// fieldNames names the fields of a six-field expression, in order.
var fieldNames = []string{"second", "minute", "hour", "day of month", "month", "day of week"}

// ParseCron parses an expression of 5 fields (minute, hour, day of month, month, day of week) or 6
// (seconds first), or a nickname such as @daily. If both day fields are restricted, either one
// suffices, as in Vixie cron.
func ParseCron(expression string, zone *time.Location) (Cron, error) {
	fields, err := cronFields(expression)
	if err != nil {
		return Cron{}, err
	}
	parser := eitherDay
	if anyDay(fields[3]) || anyDay(fields[5]) {
		parser = bothDays
	}
	parsed, err := parser.Parse(strings.Join(fields, " "))
	if err != nil { // it names no fix
		return Cron{}, fmt.Errorf("is not a cron expression (%w): write 5 fields (minute hour day month weekday), or 6 with seconds in front", err)
	}
	calendar, ok := parsed.(*cron.SpecSchedule)
	if !ok {
		return Cron{}, errors.New("does not say when it runs by fields")
	}
	return Cron{calendar: calendar, zone: zone, fixed: !open(fields[1]) && !open(fields[2])}, nil
}

// cronFields splits an expression into six fields. It refuses what the library would understand
// differently from cron, and rewrites what the library spells differently.
func cronFields(expression string) ([]string, error) {
	text := strings.TrimSpace(expression)
	if strings.HasPrefix(text, "@") {
		long, ok := nicknames[strings.ToLower(text)]
		if !ok {
			return nil, errors.New("is no nickname that is known: use @yearly, @monthly, @weekly, @daily or @hourly, or notyet-every for an interval")
		}
		text = long
	}
	fields := strings.Fields(text)
	switch len(fields) {
	case 5:
		fields = slices.Insert(fields, 0, "0")
	case 6:
	default:
		return nil, fmt.Errorf("has %d fields: it takes 5 (minute hour day-of-month month day-of-week), or 6 with seconds first", len(fields))
	}
	for i, field := range fields {
		if err := checkField(i, field); err != nil {
			return nil, err
		}
	}
	// In lower case: the library takes the H of THU for an expression of Jenkins.
	fields[4], fields[5] = strings.ToLower(fields[4]), strings.ToLower(lastWeekday(fields[5]))
	return fields, nil
}

// characters that fields may contain; names of months and days are letters
const characters = "0123456789*?,-/#ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz"

func checkField(i int, field string) error {
	if bad := strings.Trim(field, characters); bad != "" {
		return fmt.Errorf("%s field %q: %q does not belong there", fieldNames[i], field, bad)
	}
	for _, item := range strings.Split(field, ",") {
		if item == "" {
			return fmt.Errorf("%s field %q has an empty item in its list", fieldNames[i], field)
		}
		spread, _, _ := strings.Cut(item, "/")
		from, to, isRange := strings.Cut(spread, "-")
		first, err := strconv.Atoi(from)
		last, errLast := strconv.Atoi(to)
		if isRange && err == nil && errLast == nil && first > last && i != 5 {
			return fmt.Errorf("%s field %q: the range %s ends before it begins", fieldNames[i], field, spread)
		}
	}
	return nil
}

// lastWeekday rewrites 5L and FRIL, the last Friday of a month, as the library spells it: 5#L.
func lastWeekday(field string) string {
	items := strings.Split(field, ",")
	for i, item := range items {
		day, isLast := strings.CutSuffix(strings.ToUpper(item), "L")
		if isLast && day != "" && !strings.HasSuffix(day, "#") {
			items[i] = day + "#L"
		}
	}
	return strings.Join(items, ",")
}

func anyDay(field string) bool { return strings.HasPrefix(field, "*") || strings.HasPrefix(field, "?") }

func open(field string) bool { return strings.ContainsAny(field, "*?") }

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
			// No other tick comes before this one, so periods that end more than a day before it do
			// not matter.
			if far := tick.Add(-26 * time.Hour); far.After(p.end) {
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

// densest returns how many runs lie within a span of at most a day on the busiest days that the
// expression allows, whenever those come.
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

// atTime reports whether the expression has a run at a second of a day on which it runs at all.
func (c Cron) atTime(second int) bool {
	has := func(field uint64, value int) bool { return field&(1<<value) != 0 }
	return has(c.calendar.Second, second%60) && has(c.calendar.Minute, second/60%60) && has(c.calendar.Hour, second/3600)
}

// Shifted reports whether a run happens at the end of a gap because daylight saving skips its local
// time.
func (c Cron) Shifted(run time.Time) bool {
	wall := asUTC(run, periodOf(run, c.zone).offset)
	return !c.calendar.Next(wall.Add(-time.Second)).Equal(wall)
}

// period is a span of time in which a zone's offset does not change.
type period struct {
	offset time.Duration
	end    time.Time // first instant after it; zero: it has no end
	// repeatedUntil is the wall clock time, read as UTC, until which this period repeats times of
	// the period before it.
	repeatedUntil time.Time
}

func periodOf(at time.Time, zone *time.Location) period {
	local := at.In(zone)
	start, end := local.ZoneBounds()
	p := period{offset: offsetOf(local), end: end}
	// On 31 December of leap years after 2037 package time returns an end in the past
	// (golang/go#81583).
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
