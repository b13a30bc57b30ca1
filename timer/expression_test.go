package timer

import (
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// TestWrongExpressionsAreRefused: the reason names the field, the value and the fix.
func TestWrongExpressionsAreRefused(t *testing.T) {
	for expression, reason := range map[string]string{
		"":                             "is empty: write 5 fields",
		"*":                            "has 1 fields: write 5",
		"* * * *":                      "has 4 fields: write 5",
		"* * * * * * *":                "has 7 fields: write 5",
		"60 * * * *":                   `minute field "60": "60" is wrong: write a number from 0 to 59`,
		"* 24 * * *":                   `hour field "24": "24" is wrong: write a number from 0 to 23`,
		"* * 0 * *":                    "write a number from 1 to 31",
		"0 0 32 * *":                   "write a number from 1 to 31",
		"* * * 13 *":                   "write a number from 1 to 12, or a name such as FEB",
		"* * * * 8":                    "write a number from 0 to 7, or a name such as MON",
		"a * * * *":                    `"A" is wrong`,
		"*/0 * * * *":                  `minute field "*/0": the step of "*/0": "0" is wrong: write a number from 1`,
		"*/5/5 * * * *":                `"5/5" is wrong`,
		"1,,2 * * * *":                 "a value is missing",
		",1 * * * *":                   "a value is missing",
		"+5 * * * *":                   `"+5" is wrong`,
		"-1 * * * *":                   "a value is missing",
		"1-2-3 * * * *":                `"2-3" is wrong`,
		"* * * * *\x00":                `"*\x00" is wrong`,
		"９ * * * *":                    `"９" is wrong`,
		"0 0 * * MON-":                 "a value is missing",
		"0 0 * * 5#6":                  `"6" is wrong: write a number from 1 to 5`,
		"0 0 * * L":                    "a value is missing",
		"0 0 L-31 * *":                 "write a number from 1 to 30",
		"0 0 32W * *":                  "write a number from 1 to 31",
		"0 0 * L *":                    `month field "L"`,
		"0 0 * * 15W":                  `day of week field "15W"`,
		"0 0 * * MONDAY":               `day of week field "MONDAY": "MONDAY" is no name: write MON`,
		"0 0 1 january *":              `month field "january": "JANUARY" is no name: write JAN`,
		"H/15 * * * *":                 "only Jenkins knows H: write a number, and send notyet-jitter",
		"0 0 * H *":                    "Jenkins",
		"0 0 * * H":                    "Jenkins",
		"0 22-2 * * *":                 `hour field "22-2": the range 22-2 ends before it begins: write 22-23,0-2`,
		"50-10 * * * *":                "write 50-59,0-10",
		"0 0 28-3 * *":                 "write 28-31,1-3",
		"50-10 * * * * *":              `second field "50-10"`,
		"*-5 0 22 * *":                 `minute field "*-5": "*-5" is no range: write * or 0-5`,
		"0 0 *-5/2 * *":                `day of month field "*-5/2": "*-5/2" is no range: write * or 1-5`,
		"TZ=Europe/Berlin * * * * *":   "leave TZ=Europe/Berlin out, and send notyet-timezone Europe/Berlin",
		"CRON_TZ=Asia/Tokyo 0 9 * * *": "leave CRON_TZ=Asia/Tokyo out, and send notyet-timezone Asia/Tokyo",
		"@every 1m":                    "leave notyet-cron out, and send notyet-every 1m",
		"@every":                       "is no nickname that is known",
		"@reboot":                      "is no nickname that is known: write @yearly",
		"@":                            "is no nickname that is known",
		"@daily 5":                     "is no nickname that is known",
		// EventBridge's form has the minute first and the year last.
		"0 10 * * ? *":             `has EventBridge's form, the minute first and the year last: write "0 10 * * ?"`,
		"*/5 * * * ? *":            "EventBridge",
		"0 18 ? * MON-FRI *":       "EventBridge",
		"0 18 ? * MON-FRI 2027":    "EventBridge",
		"cron(0 18 ? * MON-FRI *)": "EventBridge",
		"rate(5 minutes)":          "EventBridge",
		"? ? ? ? ?":                `minute field "?": ? stands alone, in a day field: write *`,
		"* ? * * *":                `hour field "?"`,
		"* * * ? *":                `month field "?"`,
		"? 0 0 * * *":              `second field "?"`,
		"0 0 ?/2 * *":              `day of month field "?/2": ? stands alone, in a day field: write *`,
		"0 0 1,? * *":              "stands alone",
	} {
		_, err := ParseCron(expression, time.UTC)
		require.ErrorContains(t, err, reason, expression)
		require.Contains(t, strings.ReplaceAll(err.Error(), "leave", "write"), "write", "the fix")
		if expression != "" {
			_, err = New(Definition{Cron: expression})
			require.ErrorContains(t, err, reason, expression)
		}
	}
}

// TestExpressionsAreRead: the first runs from Friday 1 January 2027 on.
func TestExpressionsAreRead(t *testing.T) {
	for expression, want := range map[string]string{
		// A step beyond its field's range gives the first value.
		"0 */24 * * *":      "01T00:00 02T00:00",
		"*/60 * * * *":      "01T00:00 01T01:00",
		"*/99 */30 * * *":   "01T00:00 02T00:00",
		"55/10 * * * *":     "01T00:55 01T01:55",
		"0 9-17/9 * * *":    "01T09:00 02T09:00",
		"0 0 * * 1-2/2":     "04T00:00 11T00:00",
		"0 0 * * 4/5":       "07T00:00 14T00:00",
		"0 0 2-31/31 * *":   "02T00:00",
		"0 0 1 */12 *":      "01T00:00",
		"0 0 2 1/1000000 *": "02T00:00",
		// Days of the week go round from Saturday to Sunday.
		"0 0 * * FRI-TUE/2": "01T00:00 03T00:00 05T00:00 08T00:00 10T00:00",
		"0 0 * * 5-1/2":     "01T00:00 03T00:00 08T00:00 10T00:00",
		"0 0 * * 7-2/2":     "03T00:00 05T00:00 10T00:00",
		"0 0 * * SAT-TUE/2": "02T00:00 04T00:00 09T00:00",
		"0 0 * * SAT-SUN":   "02T00:00 03T00:00 09T00:00",
		"0 0 * * 0-7/3":     "02T00:00 03T00:00 06T00:00 09T00:00",
		"0 0 * * 7":         "03T00:00 10T00:00",
		"0 0 * * THUL":      "28T00:00",
		"0 0 * * 7#L":       "31T00:00",
		// So do months.
		"0 0 3 NOV-FEB *": "03T00:00",
		"0 0 3 11-2/2 *":  "03T00:00",
		// A question mark is a star in a day field.
		"0 9 ? * MON":     "04T09:00 11T09:00",
		"0 9 3 * ?":       "03T09:00",
		"0 9 ? * ?":       "01T09:00 02T09:00",
		"0 0 9 ? * ?":     "01T09:00 02T09:00",
		"0 0 LW * *":      "29T00:00",
		"0 0 L-2 * *":     "29T00:00",
		"0 0 2W,9W * *":   "01T00:00 08T00:00",
		"\t0 9 * * 1-5\n": "01T09:00 04T09:00",
	} {
		s, err := New(Definition{Cron: expression, From: at(t, "2027-01-01T00:00:00Z"), Until: at(t, "2027-02-01T00:00:00Z") - 1})
		require.NoError(t, err, expression)
		run := s.Definition().From - 1
		for _, day := range strings.Fields(want) {
			var ok bool
			run, ok = s.Next(run)
			require.True(t, ok, "%s: %s", expression, day)
			require.Equal(t, day, time.UnixMilli(run).UTC().Format("02T15:04"), expression)
		}
		if len(want) < 2*len("02T15:04") {
			_, ok := s.Next(run)
			require.False(t, ok, "%s: once in January", expression)
		}
	}
}

// TestWinterGoesRound: two years from March 2027 on.
func TestWinterGoesRound(t *testing.T) {
	for expression, want := range map[string]string{
		"0 0 1 NOV-FEB *":   "2027-11 2027-12 2028-01 2028-02 2028-11",
		"0 0 1 11-2/2 *":    "2027-11 2028-01 2028-11",
		"0 0 1 12-1/5 *":    "2027-12 2028-12",
		"0 0 1 FEB-JAN/5 *": "2027-07 2027-12 2028-02",
	} {
		s, err := ParseCron(expression, time.UTC)
		require.NoError(t, err, expression)
		run := time.Date(2027, 3, 1, 0, 0, 0, 0, time.UTC)
		for _, month := range strings.Fields(want) {
			run, _ = s.Next(run)
			require.Equal(t, month, run.Format("2006-01"), expression)
		}
	}
}

// TestStoredExpressionsRunOn: a timer that was set before its expression was refused runs as it did,
// until it is set again.
func TestStoredExpressionsRunOn(t *testing.T) {
	for stored, same := range map[string]string{
		"? ? ? ? ?": "* * * * *", "*-5 0 22 * *": "* 0 22 * *", "*-5/7 ?-3 * * *": "*/7 * * * *", "0 10 * * ? *": "0 10 * * * *", "*/5 * * * ? *": "*/5 * * * * *", "0 0 ?/2 * 1": "0 0 */2 * 1",
		"*-5,7 0 * * *": "*,7 0 * * *", "72/5 0 * * *": "12/5 0 * * *", "0 0 * NOV-0 9-7": "0 0 * 11,12 1-7",
	} {
		_, err := New(Definition{Cron: stored})
		require.Error(t, err, stored)
		s, err := Parse(Definition{Cron: stored, Zone: "Europe/Berlin"})
		require.NoError(t, err, stored)
		reference, err := New(Definition{Cron: same, Zone: "Europe/Berlin"})
		require.NoError(t, err)
		run, last := at(t, "2027-10-31T00:00:00Z"), int64(0)
		for range 500 {
			last = run
			run, _ = s.Next(last)
			want, _ := reference.Next(last)
			require.Equal(t, want, run, stored)
		}
	}
}

// TestEveryNameIsUnderstood: in capitals and in small letters.
func TestEveryNameIsUnderstood(t *testing.T) {
	months, days := "JAN FEB MAR APR MAY JUN JUL AUG SEP OCT NOV DEC", "SUN MON TUE WED THU FRI SAT"
	for _, form := range []func(string) string{strings.ToUpper, strings.ToLower} {
		for i, name := range strings.Fields(form(months)) {
			schedule, err := ParseCron("0 0 1 "+name+" *", time.UTC)
			require.NoError(t, err, name)
			run, _ := schedule.Next(time.Date(2027, 1, 1, 0, 0, 0, -1, time.UTC))
			require.Equal(t, time.Month(i+1), run.Month(), name)
		}
		for i, name := range strings.Fields(form(days)) {
			schedule, err := ParseCron("0 0 * * "+name, time.UTC)
			require.NoError(t, err, name)
			run, _ := schedule.Next(time.Date(2027, 1, 1, 0, 0, 0, 0, time.UTC))
			require.Equal(t, time.Weekday(i), run.Weekday(), name)
		}
	}
}

func FuzzParseCron(f *testing.F) {
	for _, seed := range []string{"* * * * *", "*/5 1-3 L * FRI#2", "0 0 30 2 *", "@daily", "0 0 0 15W JAN-MAR 5L", "H * * * *", "*-5 72/5 ? NOV-0 9-7", "0 0 */31 11-2/3 FRI-TUE/2", "CRON_TZ=UTC * * * * *"} {
		f.Add(seed)
	}
	berlin, err := time.LoadLocation("Europe/Berlin")
	if err != nil {
		f.Fatal(err)
	}
	f.Fuzz(func(t *testing.T, expression string) {
		schedule, err := ParseCron(expression, berlin)
		stored, again := readCron(expression, berlin, true)
		if err == nil && (again != nil || !reflect.DeepEqual(schedule, stored)) {
			t.Fatalf("%q: once it is stored it is another: %v", expression, again)
		}
		if again != nil {
			return
		}
		schedule = stored
		_ = schedule.densest(time.Hour)
		at := time.Date(2027, 3, 27, 0, 0, 0, 0, time.UTC)
		for range 20 {
			next, ok := schedule.Next(at)
			if !ok {
				return
			}
			if !next.After(at) {
				t.Fatalf("%q: %v does not come after %v", expression, next, at)
			}
			at = next
		}
	})
}
