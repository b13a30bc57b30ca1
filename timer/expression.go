package timer

import (
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	cron "github.com/netresearch/go-cron"
)

// This file reads expressions. The library's own reader takes typing mistakes, refuses steps of
// crontabs, and names no fix (docs/adr/0036-cron-expressions-are-read-here.md).

// searchYears limits the search for a run: 29 February on a given weekday can be 40 years away.
const searchYears = 45

// cronField is one of the six fields of an expression.
type cronField struct {
	name     string
	min, max int
	names    []string // of the values from min on
	cycle    int      // how many values a range that ends before it begins goes round; 0: it is refused
}

const (
	dayField     = 3
	weekdayField = 5
)

var fieldsOfCron = [...]cronField{
	{name: "second", max: 59},
	{name: "minute", max: 59},
	{name: "hour", max: 23},
	{name: "day of month", min: 1, max: 31},
	{name: "month", min: 1, max: 12, cycle: 12, names: strings.Fields("JAN FEB MAR APR MAY JUN JUL AUG SEP OCT NOV DEC")},
	{name: "day of week", max: 7, cycle: 7, names: strings.Fields("SUN MON TUE WED THU FRI SAT")},
}

var nicknames = map[string]string{
	"@yearly": "0 0 1 1 *", "@annually": "0 0 1 1 *", "@monthly": "0 0 1 * *", "@weekly": "0 0 * * 0",
	"@daily": "0 0 * * *", "@midnight": "0 0 * * *", "@hourly": "0 * * * *",
}

// asStored rewrites an expression of a stored definition. Earlier versions took ? in every field,
// and *-5; both meant *. bits takes 72/5, which meant 12/5.
func asStored(expression string) string {
	return rangeOfStar.ReplaceAllString(strings.ReplaceAll(expression, "?", "*"), "*")
}

var rangeOfStar = regexp.MustCompile(`\*-[^/,\s]*`)

func splitCron(expression string) ([]string, error) {
	fields := strings.Fields(expression)
	if len(fields) == 0 {
		return nil, errors.New("is empty: write 5 fields (minute hour day month weekday), or 6 with seconds in front")
	}
	first := strings.ToLower(fields[0])
	if name, zone, found := strings.Cut(fields[0], "="); found && strings.HasSuffix(strings.ToUpper(name), "TZ") {
		return nil, fmt.Errorf("names a time zone: leave %s out, and send notyet-timezone %s", fields[0], zone)
	}
	if strings.HasPrefix(first, "cron(") || strings.HasPrefix(first, "rate(") {
		return nil, errors.New("has EventBridge's form: write 5 fields (minute hour day month weekday) without cron() and without a year, or send notyet-every")
	}
	if strings.HasPrefix(first, "@") {
		long, known := nicknames[first]
		switch {
		case first == "@every" && len(fields) == 2:
			return nil, fmt.Errorf("is an interval: leave notyet-cron out, and send notyet-every %s", fields[1])
		case !known || len(fields) > 1:
			return nil, errors.New("is no nickname that is known: write @yearly, @monthly, @weekly, @daily or @hourly, or send notyet-every for an interval")
		}
		fields = strings.Fields(long)
	}
	switch len(fields) {
	case 5:
		fields = slices.Insert(fields, 0, "0")
	case 6:
		if strings.Contains(fields[2]+fields[4], "?") {
			return nil, fmt.Errorf("has EventBridge's form, the minute first and the year last: write %q, with days of the week by name", strings.Join(fields[:5], " "))
		}
	default:
		return nil, fmt.Errorf("has %d fields: write 5 (minute hour day month weekday), or 6 with seconds in front", len(fields))
	}
	for i, text := range fields {
		if strings.Contains(text, "?") && (text != "?" || i != dayField && i != weekdayField) {
			return nil, fmt.Errorf("%s field %q: ? stands alone, in a day field: write *", fieldsOfCron[i].name, text)
		}
	}
	return fields, nil
}

// calendarOf returns the calendar of six fields. If both day fields are restricted, either one
// suffices, as in Vixie cron.
func calendarOf(fields []string, stored bool) (*cron.SpecSchedule, error) {
	c := &cron.SpecSchedule{Location: time.UTC, MaxSearchYears: searchYears, DowOrDom: !anyDay(fields[dayField]) && !anyDay(fields[weekdayField])}
	into := []*uint64{&c.Second, &c.Minute, &c.Hour, &c.Dom, &c.Month, &c.Dow}
	for i, text := range fields {
		for item := range strings.SplitSeq(strings.ToUpper(text), ",") {
			special, err := specialDay(c, i, item)
			if !special && err == nil {
				var bits uint64
				bits, err = fieldsOfCron[i].bits(item, stored)
				*into[i] |= bits
			}
			if err != nil {
				return nil, fmt.Errorf("%s field %q: %w", fieldsOfCron[i].name, text, err)
			}
		}
	}
	return c, nil
}

func anyDay(field string) bool { return strings.HasPrefix(field, "*") || field == "?" }

// specialDay reads an item that depends on the month: L, L-3, LW, 15W, 5L, 5#2, 5#L.
func specialDay(c *cron.SpecSchedule, i int, item string) (is bool, err error) {
	last := -1 // the occurrence of 5L and 5#L
	switch day, nth, numbered := strings.Cut(item, "#"); {
	case i == dayField && item == "L":
		c.DomConstraints = append(c.DomConstraints, cron.DomConstraint{Type: cron.DomLast})
	case i == dayField && item == "LW":
		c.DomConstraints = append(c.DomConstraints, cron.DomConstraint{Type: cron.DomLastWeekday})
	case i == dayField && strings.HasPrefix(item, "L-"):
		var n int
		if n, err = number(item[2:], 1, 30); err == nil {
			c.DomConstraints = append(c.DomConstraints, cron.DomConstraint{Type: cron.DomLastOffset, N: n})
		}
	case i == dayField && strings.HasSuffix(item, "W"):
		var n int
		if n, err = number(item[:len(item)-1], 1, 31); err == nil {
			c.DomConstraints = append(c.DomConstraints, cron.DomConstraint{Type: cron.DomNearestWeekday, N: n})
		}
	case i == weekdayField && (numbered || strings.HasSuffix(item, "L")):
		if !numbered {
			day = item[:len(item)-1]
		}
		if numbered && nth != "L" {
			if last, err = number(nth, 1, 5); err != nil {
				return true, err
			}
		}
		var weekday int
		if weekday, err = fieldsOfCron[i].value(day, false); err == nil {
			c.DowConstraints = append(c.DowConstraints, cron.DowConstraint{Weekday: weekday % 7, N: last})
		}
	default:
		return false, nil
	}
	return true, err
}

// bits returns the values of an item: *, 5, 5-9, each with or without a step. A step beyond the
// range leaves its first value.
func (f *cronField) bits(item string, stored bool) (bits uint64, err error) {
	span, stepText, stepped := strings.Cut(item, "/")
	step := 1
	if stepped {
		if step, err = number(stepText, 1, 1_000_000); err != nil {
			return 0, fmt.Errorf("the step of %q: %w", item, err)
		}
	}
	from, to, isRange := strings.Cut(span, "-")
	first, last := f.min, f.max
	switch {
	case isRange && (from == "*" || from == "?"):
		return 0, fmt.Errorf("%q is no range: write * or %d-%s", item, f.min, to)
	case from == "*" || from == "?":
	default:
		if first, err = f.value(from, stored && (isRange || stepped)); err != nil {
			return 0, err
		}
		if isRange {
			if last, err = f.value(to, stored); err != nil {
				return 0, err
			}
		} else if !stepped {
			last = first
		}
	}
	if first > f.max {
		first -= f.max - f.min + 1
	}
	cycle := f.max + 1
	if f.cycle > 0 {
		cycle = f.cycle
	}
	if last < first {
		if f.cycle == 0 {
			return 0, fmt.Errorf("the range %s ends before it begins: write %s-%d,%d-%s", span, from, f.max, f.min, to)
		}
		last += cycle
	}
	for v := first; v <= last; v += step {
		bits |= 1 << ((v-f.min)%cycle + f.min)
	}
	return bits, nil
}

// value reads a number or a name. A number beyond the field may be one of a stored definition.
func (f *cronField) value(text string, beyond bool) (int, error) {
	if i := slices.Index(f.names, text); i >= 0 {
		return f.min + i, nil
	}
	low, high := f.min, f.max
	if beyond {
		low, high = 0, 2*f.max+1
	}
	n, err := number(text, low, high)
	if err == nil {
		return n, nil
	}
	if len(text) > 3 && slices.Contains(f.names, text[:3]) {
		return 0, fmt.Errorf("%q is no name: write %s", text, text[:3])
	}
	if text == "H" {
		return 0, errors.New("only Jenkins knows H: write a number, and send notyet-jitter to spread runs")
	}
	if f.names != nil {
		err = fmt.Errorf("%w, or a name such as %s", err, f.names[1])
	}
	return 0, err
}

func number(text string, low, high int) (int, error) {
	n, err := strconv.ParseUint(text, 10, 32)
	switch {
	case text == "":
		return 0, fmt.Errorf("a value is missing: write a number from %d to %d", low, high)
	case err != nil || int(n) < low || int(n) > high:
		return 0, fmt.Errorf("%q is wrong: write a number from %d to %d", text, low, high)
	}
	return int(n), nil
}
