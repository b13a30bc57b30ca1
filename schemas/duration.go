package schemas

import (
	"bytes"
	"math"
	"math/bits"
	"time"
)

// This file parses durations exactly, in integers. time.ParseDuration drops digits below a
// nanosecond and computes fractions in floating point, so its result can be too short. The ISO 8601
// parsers we know do the same, and accept repeated and misplaced units. Short delays deliver early.

const durationFix = "write a duration such as 90s, 36h, PT30M or P400D"

const (
	notDuration  = "is not a duration"
	negative     = "is negative"
	tooLong      = "is longer than 292 years"
	yearsOrMonth = "has years or months, whose length is not fixed"
)

// parseDuration reads a Go duration (90s, 1.5h) or an ISO 8601 one (PT30M, P1DT12H, P2W; no years,
// no months). It returns what is wrong, or "". Fractions of a nanosecond are rounded up.
func parseDuration(v []byte) (d time.Duration, problem string) {
	if len(v) == 0 {
		return 0, "is empty"
	}
	switch v[0] {
	case '-':
		return 0, negative
	case 'P':
		return parseISO(v[1:])
	case '+':
		v = v[1:]
	}
	if len(v) == 1 && v[0] == '0' {
		return 0, ""
	}
	return parseGo(v)
}

// parseGo reads one or more numbers, each with its unit.
func parseGo(v []byte) (time.Duration, string) {
	if len(v) == 0 {
		return 0, notDuration
	}
	var total time.Duration
	for len(v) > 0 {
		n, rest, problem := readDecimal(v)
		if problem != "" {
			return 0, problem
		}
		end := bytes.IndexFunc(rest, func(r rune) bool { return r == '.' || r >= '0' && r <= '9' })
		if end < 0 {
			end = len(rest)
		}
		unit := goUnits[string(rest[:end])]
		if unit == 0 {
			return 0, notDuration
		}
		if total, problem = n.addTo(total, unit); problem != "" {
			return 0, problem
		}
		v = rest[end:]
	}
	return total, ""
}

// goUnits are those of Go. The sign of micro is U+00B5 or U+03BC.
var goUnits = map[string]time.Duration{
	"ns": time.Nanosecond, "us": time.Microsecond, "µs": time.Microsecond, "μs": time.Microsecond,
	"ms": time.Millisecond, "s": time.Second, "m": time.Minute, "h": time.Hour,
}

// parseISO reads an ISO duration behind the P. Each unit comes at most once, from long to short.
// Only the last may have a fraction.
func parseISO(v []byte) (time.Duration, string) {
	var total time.Duration
	inTime, parts, last, fraction := false, 0, time.Duration(math.MaxInt64), false
	for len(v) > 0 {
		if v[0] == 'T' && !inTime {
			inTime, parts, v = true, 0, v[1:]
			continue
		}
		n, rest, problem := readDecimal(v)
		if problem != "" {
			return 0, problem
		}
		if len(rest) == 0 || fraction {
			return 0, notDuration
		}
		if rest[0] == 'Y' || rest[0] == 'M' && !inTime {
			return 0, yearsOrMonth
		}
		unit := isoDates[rest[0]]
		if inTime {
			unit = isoTimes[rest[0]]
		}
		if unit == 0 || unit >= last {
			return 0, notDuration
		}
		if total, problem = n.addTo(total, unit); problem != "" {
			return 0, problem
		}
		last, fraction, parts, v = unit, n.scale > 1, parts+1, rest[1:]
	}
	if parts == 0 {
		return 0, notDuration // "P", "PT", "P1DT"
	}
	return total, ""
}

// isoDates and isoTimes are the units of ISO 8601 before and behind the T.
var (
	isoDates = map[byte]time.Duration{'W': 7 * 24 * time.Hour, 'D': 24 * time.Hour}
	isoTimes = map[byte]time.Duration{'H': time.Hour, 'M': time.Minute, 'S': time.Second}
)

// decimal is whole + frac/scale. sticky means that further digits, not all 0, follow.
type decimal struct {
	whole, frac, scale uint64
	sticky             bool
}

// readDecimal reads digits, optionally with a point; at least one digit in total.
func readDecimal(v []byte) (d decimal, rest []byte, problem string) {
	d.scale = 1
	i := 0
	for ; i < len(v) && isDigit(v[i]); i++ {
		if d.whole > (math.MaxUint64-9)/10 {
			return d, nil, tooLong
		}
		d.whole = d.whole*10 + uint64(v[i]-'0')
	}
	digits := i
	if i < len(v) && v[i] == '.' {
		for i++; i < len(v) && isDigit(v[i]); i++ {
			digits++
			d.addFraction(v[i] - '0')
		}
	}
	if digits == 0 {
		return d, nil, notDuration
	}
	return d, v[i:], ""
}

// addFraction keeps 18 digits, which fit 64 bits. sticky: a digit other than 0 followed.
func (d *decimal) addFraction(digit byte) {
	if d.scale < 1e18 {
		d.frac, d.scale = d.frac*10+uint64(digit), d.scale*10
	} else if digit != 0 {
		d.sticky = true
	}
}

// addTo adds d × unit to total, rounded up to a nanosecond.
func (d decimal) addTo(total, unit time.Duration) (time.Duration, string) {
	hi, ns := bits.Mul64(d.whole, uint64(unit))
	if hi != 0 || ns > math.MaxInt64 {
		return 0, tooLong
	}
	// frac < scale, so the quotient is below unit and Div64 cannot overflow.
	hi, lo := bits.Mul64(d.frac, uint64(unit))
	part, rem := bits.Div64(hi, lo, d.scale)
	if rem != 0 || d.sticky {
		part++
	}
	// ns and part are below 2^63, so their sum cannot wrap. The sum with total is checked first.
	sum := ns + part
	if sum > math.MaxInt64 || sum > math.MaxInt64-uint64(total) {
		return 0, tooLong
	}
	return total + time.Duration(sum), ""
}

func isDigit(c byte) bool { return c >= '0' && c <= '9' }

// CeilMillis returns a duration in whole milliseconds, rounded up: rounding may only ever be late.
// The duration must not be negative.
func CeilMillis(d time.Duration) int64 {
	ms := int64(d / time.Millisecond)
	if d%time.Millisecond != 0 {
		ms++
	}
	return ms
}
