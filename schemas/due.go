package schemas

import (
	"bytes"
	"fmt"
	"math"
	"strconv"
	"time"
)

const (
	// minMillis and maxMillis are the first and the last millisecond in RFC 3339, 0000-01-01 and
	// 9999-12-31 UTC. Within them no sum of a time and a duration (at most 9.3e12 ms) overflows.
	minMillis = -62167219200000
	maxMillis = 253402300799999
)

// FirstMillis is the smallest number accepted as Unix milliseconds (1973-03-03). A smaller one is
// probably Unix seconds (until the year 5138), whose task would be delivered at once. RFC 3339 can
// write such an early time without ambiguity.
const FirstMillis = 100_000_000_000

const (
	atFix     = "write RFC 3339 such as 2027-01-31T08:00:00+01:00, or Unix milliseconds"
	noOffset  = "is a local time without a time zone"
	offsetFix = "add its offset, such as Z or +01:00"
)

// ParseTime reads a time in the forms of notyet-at that need no time zone, as Unix milliseconds.
func ParseTime(text string) (int64, *Rejection) {
	ms, _, rej := parseTime(hAt, []byte(text), nil)
	return ms, rej
}

// LocalTime returns the instant of a local time such as 2027-01-31T08:00 in a time zone, an IANA
// name, like a request with notyet-timezone: a time that daylight saving skips is the end of the
// gap, and one that comes twice is the first. Fractions of a millisecond are rounded up. The error
// is a *Rejection.
func LocalTime(text, timezone string) (time.Time, error) {
	zone, rej := parseZone([]byte(timezone))
	if rej != nil {
		return time.Time{}, rej
	}
	ms, local, rej := parseTime(hAt, []byte(text), zone)
	switch {
	case rej != nil:
		return time.Time{}, rej
	case !local:
		return time.Time{}, bad(hAt, []byte(text), "is no local time", "write it without an offset, such as 2027-01-31T08:00")
	}
	return time.UnixMilli(ms).In(zone), nil
}

func (d *decoder) time(h header, v []byte) (int64, *Rejection) {
	ms, local, rej := parseTime(h, v, d.zone)
	if rej != nil && rej.Problem == noOffset && d.seen&hEvery == 0 {
		rej.Fix += ", or send " + HeaderTimezone
	}
	d.local = d.local || local
	return ms, rej
}

// parseTime reads a time as Unix milliseconds, rounded up. A local time is one in the zone.
func parseTime(h header, v []byte, zone *time.Location) (ms int64, local bool, rej *Rejection) {
	if len(v) == 0 {
		return 0, false, bad(h, v, "is empty", atFix)
	}
	if ms, isInt, _ := parseInt(v); isInt {
		if ms < FirstMillis {
			return 0, false, seconds(h, v, ms)
		}
		if ms > maxMillis {
			return 0, false, bad(h, v, "is not within the years 0000 to 9999 in milliseconds", atFix)
		}
		return ms, false, nil
	}
	text := bytes.ToUpper(v) // RFC 3339 allows t and z too
	wall, offset, ok := splitTime(text)
	switch {
	case !ok:
		return 0, false, bad(h, v, "is neither RFC 3339 nor Unix milliseconds", atFix)
	case len(offset) == 0 && zone == nil:
		return 0, false, bad(h, v, noOffset, offsetFix)
	case len(offset) == 0:
		text = append(wall, 'Z')
	}
	var t time.Time
	if t.UnmarshalText(text) != nil {
		problem, fix := impossible(wall)
		return 0, false, bad(h, v, problem, fix)
	}
	if t.Nanosecond()%1e6 != 0 || belowNanosecond(wall) {
		t = t.Truncate(time.Millisecond).Add(time.Millisecond)
	}
	if len(offset) == 0 {
		t = firstInstant(t, zone)
	}
	// An offset can carry the instant a day beyond the written year.
	if ms = t.UnixMilli(); ms < minMillis || ms > maxMillis {
		return 0, false, bad(h, v, "is not within the years 0000 to 9999", atFix)
	}
	return ms, len(offset) == 0, nil
}

func seconds(h header, v []byte, n int64) *Rejection {
	fix := "write Unix milliseconds, or RFC 3339 such as 1970-01-31T08:00:00Z for a time that long ago"
	if n > 0 {
		fix = "write Unix milliseconds: " + strconv.FormatInt(n, 10) + "000"
	}
	return bad(h, v, "is below "+strconv.Itoa(FirstMillis)+", so it is Unix seconds by mistake", fix)
}

func appendAt(b []byte, ms int64) []byte {
	if ms < FirstMillis {
		return time.UnixMilli(ms).UTC().AppendFormat(b, "2006-01-02T15:04:05.000Z07:00")
	}
	return strconv.AppendInt(b, ms, 10)
}

// splitTime splits a time in the form of RFC 3339 at its offset. Without one it is a local time,
// whose seconds may be missing. Package time is lenient: it accepts a comma, one-digit hours and
// offsets of 24 hours. But it does check whether the day exists.
func splitTime(v []byte) (wall, offset []byte, ok bool) {
	const minutes, form, hours = "0000-00-00T00:00", "0000-00-00T00:00:00", "00:00"
	wall = v
	switch n := len(v) - len(hours) - 1; {
	case len(v) == len(minutes):
		return append(wall[:len(v):len(v)], ":00"...), nil, hasForm(v, minutes)
	case len(v) < len(form):
		return nil, nil, false
	case v[len(v)-1] == 'Z':
		wall, offset = v[:len(v)-1], v[len(v)-1:]
	case n >= len(form) && (v[n] == '+' || v[n] == '-'):
		wall, offset = v[:n], v[n:]
		if !hasForm(v[n+1:], hours) || string(offset[1:3]) > "23" || string(offset[4:]) > "59" {
			return nil, nil, false
		}
	}
	fraction := wall[min(len(form), len(wall)):]
	ok = len(wall) >= len(form) && hasForm(wall[:len(form)], form) && (len(fraction) == 0 || len(fraction) > 1 && fraction[0] == '.')
	for _, c := range fraction[min(1, len(fraction)):] {
		ok = ok && isDigit(c)
	}
	return wall[:len(wall):len(wall)], offset, ok
}

// impossible tells which part of a time does not exist.
func impossible(wall []byte) (problem, fix string) {
	part := func(at int) int { return int(wall[at]-'0')*10 + int(wall[at+1]-'0') }
	year, month, day, hour, second := part(0)*100+part(2), part(5), part(8), part(11), part(17)
	last := time.Date(year, time.Month(month)+1, 0, 0, 0, 0, 0, time.UTC).Day()
	switch {
	case month < 1 || month > 12:
		return fmt.Sprintf("has the month %02d", month), "write 01 to 12"
	case day < 1 || day > last:
		return fmt.Sprintf("has the day %02d, and %s %d has %d days", day, time.Month(month), year, last), "write a day that exists"
	case hour > 23:
		return fmt.Sprintf("has the hour %02d", hour), "write 00 to 23; the end of a day is 00:00 of the next one"
	case second == 60:
		return "has a leap second, which Unix time does not count", "write 59, or 00 of the next minute"
	}
	return fmt.Sprintf("has the minute %02d and the second %02d", part(14), second), "write 00 to 59"
}

// firstInstant returns the first instant at which a zone's clocks show a time, read as UTC, or the
// end of the gap that skips it.
func firstInstant(wall time.Time, zone *time.Location) time.Time {
	// No zone is a day ahead: its clocks show the time later.
	for at := wall.Add(-26 * time.Hour); ; {
		local := at.In(zone)
		_, offset := local.Zone()
		_, end := local.ZoneBounds()
		if !end.IsZero() && !end.After(at) { // golang/go#81583: on 31 December of leap years after 2037
			end = at.Add(24 * time.Hour)
		}
		shown := wall.Add(-time.Duration(offset) * time.Second)
		switch {
		case shown.Before(at):
			return at
		case end.IsZero() || shown.Before(end):
			return shown
		}
		at = end
	}
}

// hasForm compares byte by byte. A 0 in the form matches any digit.
func hasForm(v []byte, form string) bool {
	for i, c := range v {
		if form[i] == '0' && !isDigit(c) || form[i] != '0' && form[i] != c {
			return false
		}
	}
	return true
}

// belowNanosecond reports whether a valid RFC 3339 time has a digit other than 0 after its ninth
// decimal; package time drops those.
func belowNanosecond(v []byte) bool {
	const ninth = len("2006-01-02T15:04:05.000000000")
	return len(v) > ninth && len(bytes.TrimRight(v[ninth:], "0")) > 0
}

// parseInt reads [-]digits. Other signs and separators of strconv are not part of the contract. A
// number that does not fit is still an integer: it saturates, and fits is false.
func parseInt(v []byte) (n int64, isInt, fits bool) {
	sign := int64(1)
	if len(v) > 0 && v[0] == '-' {
		sign, v = -1, v[1:]
	}
	if len(v) == 0 {
		return 0, false, false
	}
	fits = true
	for _, c := range v {
		if !isDigit(c) {
			return 0, false, false
		}
		digit := int64(c - '0')
		if !fits || n > (math.MaxInt64-digit)/10 {
			n, fits = math.MaxInt64, false
			continue
		}
		n = n*10 + digit
	}
	return sign * n, true, fits
}

// due computes the due time. No sum here can overflow: times and Accepted are within minMillis and
// maxMillis, and a duration has at most 9.3e12 ms.
func (d *decoder) due(l *Limits) *Rejection {
	h, v := d.seen&(hAt|hDelay), d.at
	switch h {
	case 0:
		return missing(hAt, "send "+HeaderAt+" or "+HeaderDelay)
	case hAt | hDelay:
		return bad(hDelay, d.delay, "stands beside "+HeaderAt, "send one of them")
	case hAt:
		at, rej := d.time(hAt, v)
		if rej != nil {
			return rej
		}
		d.req.Due = at
	case hDelay:
		v = d.delay
		delay, problem := parseDuration(v)
		if problem != "" {
			return bad(hDelay, v, problem, durationFix)
		}
		d.req.Due = d.req.Accepted + CeilMillis(delay)
	}
	if d.zone != nil && !d.local {
		return bad(hTimezone, []byte(d.zone.String()), "means nothing without a local time", "leave it out, or write "+HeaderAt+" without an offset, such as 2027-01-31T08:00")
	}
	if d.req.Due-d.req.Accepted > l.maxDelay() || d.req.Due > maxMillis {
		return beyond(h, v, l, d.req.Accepted)
	}
	return nil
}
