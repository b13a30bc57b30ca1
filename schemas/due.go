package schemas

import (
	"bytes"
	"math"
	"strconv"
	"time"
)

const (
	// minMillis and maxMillis are the first and the last millisecond that RFC 3339 can write,
	// 0000-01-01 and 9999-12-31 UTC. Within them no sum of a time and a duration (at most 9.3e12
	// ms) overflows.
	minMillis = -62167219200000
	maxMillis = 253402300799999
)

// FirstMillis is the smallest number that is accepted as Unix milliseconds (1973-03-03). A smaller
// one is probably Unix seconds (until the year 5138), whose task would be delivered at once. RFC
// 3339 can write such an early time without ambiguity.
const FirstMillis = 100_000_000_000

const atFix = "write RFC 3339 such as 2027-01-31T08:00:00+01:00, or Unix milliseconds"

// parseAt reads a due time as Unix milliseconds, rounded up.
func parseAt(v []byte) (int64, *Rejection) { return parseTime(hAt, v) }

// ParseTime reads a time in the forms of notyet-at, as Unix milliseconds.
func ParseTime(text string) (int64, *Rejection) { return parseAt([]byte(text)) }

// parseTime reads a header that is a time.
func parseTime(h header, v []byte) (int64, *Rejection) {
	if len(v) == 0 {
		return 0, bad(h, v, "is empty", atFix)
	}
	if ms, isInt, _ := parseInt(v); isInt {
		if ms < FirstMillis {
			return 0, seconds(h, v, ms)
		}
		if ms > maxMillis {
			return 0, bad(h, v, "is not within the years 0000 to 9999 in milliseconds", atFix)
		}
		return ms, nil
	}
	var t time.Time
	if upper := bytes.ToUpper(v); !rfc3339(upper) || t.UnmarshalText(upper) != nil { // RFC 3339 allows t and z too
		return 0, bad(h, v, "is neither RFC 3339 nor Unix milliseconds", atFix)
	}
	// An offset can carry the instant a day beyond the written year.
	ms := t.Unix()*1000 + int64(t.Nanosecond()/1e6)
	if t.Nanosecond()%1e6 != 0 || belowNanosecond(v) {
		ms++
	}
	if ms < minMillis || ms > maxMillis {
		return 0, bad(h, v, "is not within the years 0000 to 9999", atFix)
	}
	return ms, nil
}

func seconds(h header, v []byte, n int64) *Rejection {
	fix := "write Unix milliseconds, or RFC 3339 such as 1970-01-31T08:00:00Z for a time that long ago"
	if n > 0 {
		fix = "write Unix milliseconds: " + strconv.FormatInt(n, 10) + "000"
	}
	return bad(h, v, "is below "+strconv.Itoa(FirstMillis)+", so it is Unix seconds by mistake", fix)
}

// appendAt writes a due time in the form that parseAt takes.
func appendAt(b []byte, ms int64) []byte {
	if ms < FirstMillis {
		return time.UnixMilli(ms).UTC().AppendFormat(b, "2006-01-02T15:04:05.000Z07:00")
	}
	return strconv.AppendInt(b, ms, 10)
}

// rfc3339 checks the form, where package time is lenient: that accepts a comma, one-digit hours and
// offsets of 24 hours. Package time checks whether the day exists.
func rfc3339(v []byte) bool {
	const form = "0000-00-00T00:00:00"
	if len(v) < len(form) || !hasForm(v[:len(form)], form) {
		return false
	}
	v = v[len(form):]
	if len(v) > 1 && v[0] == '.' && isDigit(v[1]) {
		for v = v[1:]; len(v) > 0 && isDigit(v[0]); {
			v = v[1:]
		}
	}
	if len(v) == 1 {
		return v[0] == 'Z'
	}
	const offset = "00:00"
	return len(v) == 1+len(offset) && (v[0] == '+' || v[0] == '-') && hasForm(v[1:], offset) &&
		string(v[1:3]) < "24" && string(v[4:6]) < "60"
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
	const point = len("2006-01-02T15:04:05")
	if len(v) <= point || v[point] != '.' {
		return false
	}
	for i := point + 10; i < len(v) && isDigit(v[i]); i++ {
		if v[i] != '0' {
			return true
		}
	}
	return false
}

// parseInt reads [-]digits. Other signs and separators that strconv accepts are not part of the
// contract. A number that does not fit is still an integer: it saturates, and fits is false.
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

// due computes the due time. No sum here can overflow: parseAt and Accepted are within minMillis
// and maxMillis, and a duration has at most 9.3e12 ms.
func (d *decoder) due(l *Limits) *Rejection {
	h, v := d.seen&(hAt|hDelay), d.at
	switch h {
	case 0:
		return missing(hAt, "send "+HeaderAt+" or "+HeaderDelay)
	case hAt | hDelay:
		return bad(hDelay, d.delay, "stands beside "+HeaderAt, "send one of them")
	case hAt:
		at, rej := parseAt(v)
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
	if d.req.Due-d.req.Accepted > l.maxDelay() || d.req.Due > maxMillis {
		return beyond(h, v, l, d.req.Accepted)
	}
	return nil
}
