package schemas

import (
	"math"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"
)

func TestParseDuration(t *testing.T) {
	const day = 24 * time.Hour
	for in, want := range map[string]time.Duration{
		"0": 0, "+0": 0, "0s": 0, "90s": 90 * time.Second, "36h": 36 * time.Hour, "1h30m": 90 * time.Minute, "1.5h": 90 * time.Minute,
		".5s": 500 * time.Millisecond, "1.s": time.Second, "+5s": 5 * time.Second, "3µs2us1μs": 6 * time.Microsecond, "7ns": 7,
		"PT30M": 30 * time.Minute, "P400D": 400 * day, "P2W": 14 * day, "P1W2D": 9 * day, "P1DT12H": 36 * time.Hour, "PT0S": 0,
		"PT1H2M3.5S": time.Hour + 2*time.Minute + 3500*time.Millisecond, "PT.5H": 30 * time.Minute, "P0.5D": 12 * time.Hour,
		"9223372036854775807ns": math.MaxInt64,
		// Fractions of a nanosecond go up.
		"0.1ns": 1, "0.0000000001s": 1, "1.0000000000000000000000001s": time.Second + 1, "PT0.0000000001S": 1, "1.0000000000000000000000000s": time.Second,
	} {
		got, problem := parseDuration([]byte(in))
		require.Empty(t, problem, in)
		require.Equal(t, want, got, in)
	}
}

func TestParseDurationProblems(t *testing.T) {
	for in, want := range map[string]string{
		"": "is empty", "-1s": negative, "-PT1S": negative, "-0": negative,
		"5": notDuration, "s": notDuration, "+": notDuration, ".s": notDuration, "1": notDuration, "5 s": notDuration, " 5s": notDuration,
		"5d": notDuration, "5S": notDuration, "1..s": notDuration, "1s-1s": notDuration, "1e3s": notDuration, "1_000s": notDuration, "٣s": notDuration,
		"P": notDuration, "PT": notDuration, "P1DT": notDuration, "P1": notDuration, "PP1D": notDuration, "P1D1D": notDuration, "PT1H1H": notDuration,
		"PT1S1M": notDuration, "P1H": notDuration, "PT1D": notDuration, "PT1W": notDuration, "P-1D": notDuration, "P1.5DT1H": notDuration,
		"pt1s": notDuration, "PT1TS": notDuration, "+P1D": notDuration, "PT1,5S": notDuration, "P1D ": notDuration,
		"P1Y": yearsOrMonth, "P1M": yearsOrMonth, "P1Y2M": yearsOrMonth, "P1M1D": yearsOrMonth,
		"9223372036854775808ns": tooLong, "2562048h": tooLong, "99999999999999999999999h": tooLong, "P106752D": tooLong,
		"9223372036s1s": tooLong, "9223372036.854775808s": tooLong, "18446744073709551616ns": tooLong,
	} {
		_, problem := parseDuration([]byte(in))
		require.Equal(t, want, problem, in)
	}
}

// TestParseDurationLikeGo: whatever Go writes is read back exactly, and what Go reads comes out the
// same, or longer by the nanosecond that Go drops.
func TestParseDurationLikeGo(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		d := time.Duration(rapid.Int64Min(0).Draw(t, "d"))
		got, problem := parseDuration([]byte(d.String()))
		require.Empty(t, problem)
		require.Equal(t, d, got)

		text := rapid.StringMatching(`\+?([0-9]{1,4}(\.[0-9]{0,12})?(ns|us|µs|ms|s|m|h)){1,3}`).Draw(t, "text")
		want, err := time.ParseDuration(text)
		require.NoError(t, err)
		got, problem = parseDuration([]byte(text))
		require.Empty(t, problem)
		require.GreaterOrEqual(t, got, want)
		require.LessOrEqual(t, got-want, time.Duration(3)) // one for each of up to three units
	})
}

func TestCeilMillis(t *testing.T) {
	for in, want := range map[time.Duration]int64{
		0: 0, 1: 1, 999999: 1, 1000000: 1, 1000001: 2, math.MaxInt64: math.MaxInt64/1000000 + 1,
	} {
		require.Equal(t, want, CeilMillis(in))
	}
}

func TestParseAt(t *testing.T) {
	for in, want := range map[string]int64{
		"1790000060000": 1790000060000, "100000000000": 100000000000, "00100000000000": 100000000000,
		"2026-09-21T14:13:20Z":                accepted,
		"2026-09-21T16:13:20+02:00":           accepted,
		"2026-09-21T14:13:20.000Z":            accepted,
		"2026-09-21T14:13:20.001Z":            accepted + 1,
		"2026-09-21T14:13:20.0000000Z":        accepted,
		"2026-09-21T14:13:20.000000001Z":      accepted + 1,
		"2026-09-21T14:13:20.0000000001Z":     accepted + 1, // package time drops this digit
		"2026-09-21T14:13:20.0000000000Z":     accepted,
		"2026-09-21T14:13:19.999000000001Z":   accepted,
		"2026-09-21T14:13:19.9991Z":           accepted,
		"1969-12-31T23:59:59.9991Z":           0, // up, before 1970 too
		"1969-12-31T23:59:59.9981Z":           -1,
		"0001-01-01T00:00:00Z":                -62135596800000,
		"2026-09-21t14:13:20z":                accepted,
		"0000-01-01T00:00:00Z":                minMillis,
		"9999-12-31T23:59:59.999Z":            maxMillis,
		"2024-02-29T00:00:00.123456789-12:30": 1709209800124,
	} {
		got, rej := ParseTime(in)
		require.Nil(t, rej, in)
		require.Equal(t, want, got, in)
	}
	for _, in := range []string{
		"0", "-1", "007", "99999999999", "1790000060", "", " 1", "1 ", "+1", "1.5", "1e12", "0x10", "--1", "-", "253402300800000", "-62167219200001", "99999999999999999999",
		"2026-09-21", "2026-09-21T14:13:20", "2026-09-21 14:13:20Z", "2026-09-21T14:13:20,5Z", "2026-09-21T4:13:20Z", "2026-09-21T24:00:00Z",
		"2026-02-29T00:00:00Z", "2026-09-21T14:13:20+24:00", "2026-09-21T14:13:20.Z", "0000-01-01T00:00:00+00:01", "9999-12-31T23:59:59.9999Z",
	} {
		_, rej := ParseTime(in)
		require.NotNil(t, rej, in)
	}
}

// TestParseAtNeverEarly compares with exact arithmetic on the decimal digits.
func TestParseAtNeverEarly(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		ms := rapid.Int64Range(0, maxMillis-1).Draw(t, "ms")
		tail := rapid.StringMatching(`[0-9]{0,12}`).Draw(t, "tail")
		at := time.UnixMilli(ms).UTC().Format("2006-01-02T15:04:05.000") + tail + "Z"
		got, rej := ParseTime(at)
		require.Nil(t, rej)
		want := ms
		for _, c := range tail {
			if c != '0' {
				want = ms + 1
			}
		}
		require.Equal(t, want, got, at)
	})
}

func TestParseInt(t *testing.T) {
	for in, want := range map[string]int64{"0": 0, "-0": 0, "9223372036854775807": math.MaxInt64, "-9223372036854775807": -math.MaxInt64} {
		n, isInt, fits := parseInt([]byte(in))
		require.True(t, isInt && fits, in)
		require.Equal(t, want, n, in)
	}
	for _, in := range []string{"9223372036854775808", "99999999999999999999999999"} {
		n, isInt, fits := parseInt([]byte(in))
		require.True(t, isInt && !fits, in)
		require.EqualValues(t, math.MaxInt64, n)
	}
}
