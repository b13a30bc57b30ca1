package timer

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

func zone(t *testing.T, name string) *time.Location {
	t.Helper()
	z, err := time.LoadLocation(name)
	require.NoError(t, err)
	return z
}

// TestDaylightSaving: what the contract says of local times that are skipped and of those that come
// twice.
func TestDaylightSaving(t *testing.T) {
	for name, c := range map[string]struct {
		zone, cron, after string
		want              []string // in the zone
	}{
		"skipped, once at the end of the gap": {"Europe/Berlin", "30 2 * * *", "2027-03-27T12:00:00+01:00",
			[]string{"2027-03-28T03:00:00+02:00", "2027-03-29T02:30:00+02:00"}},
		"two skipped times are one run at the end of the gap": {"Europe/Berlin", "15,45 2 * * *", "2027-03-27T12:00:00+01:00",
			[]string{"2027-03-28T03:00:00+02:00", "2027-03-29T02:15:00+02:00"}},
		"the end of the gap is a run of its own": {"Europe/Berlin", "0,30 2,3 28 3 *", "2027-03-27T12:00:00+01:00",
			[]string{"2027-03-28T03:00:00+02:00", "2027-03-28T03:30:00+02:00", "2028-03-28T02:00:00+02:00"}},
		"comes twice, the first time only": {"Europe/Berlin", "30 2 * * *", "2027-10-30T12:00:00+02:00",
			[]string{"2027-10-31T02:30:00+02:00", "2027-11-01T02:30:00+01:00"}},
		"asked between the two": {"Europe/Berlin", "30 2 * * *", "2027-10-31T02:45:00+02:00",
			[]string{"2027-11-01T02:30:00+01:00"}},
		"asked in the second one": {"Europe/Berlin", "45 2 * * *", "2027-10-31T02:30:00+01:00",
			[]string{"2027-11-01T02:45:00+01:00"}},
		"elapsed time over the gap": {"Europe/Berlin", "*/30 * * * *", "2027-03-28T01:00:00+01:00",
			[]string{"2027-03-28T01:30:00+01:00", "2027-03-28T03:00:00+02:00", "2027-03-28T03:30:00+02:00"}},
		"elapsed time over the repeated hour": {"Europe/Berlin", "*/30 * * * *", "2027-10-31T01:59:00+02:00",
			[]string{"2027-10-31T02:00:00+02:00", "2027-10-31T02:30:00+02:00", "2027-10-31T02:00:00+01:00", "2027-10-31T02:30:00+01:00", "2027-10-31T03:00:00+01:00"}},
		"a star in the minute alone follows elapsed time": {"Europe/Berlin", "*/30 2 * * *", "2027-03-27T12:00:00+01:00",
			[]string{"2027-03-29T02:00:00+02:00"}},
		"a star in the hour alone too": {"Europe/Berlin", "30 */2 * * *", "2027-10-31T01:00:00+02:00",
			[]string{"2027-10-31T02:30:00+02:00", "2027-10-31T02:30:00+01:00", "2027-10-31T04:30:00+01:00"}},
		"both hours of a Sunday, and none before the next": {"Europe/Berlin", "*/30 2 * * SUN", "2027-10-31T00:00:00+02:00",
			[]string{"2027-10-31T02:00:00+02:00", "2027-10-31T02:30:00+02:00", "2027-10-31T02:00:00+01:00", "2027-10-31T02:30:00+01:00", "2027-11-07T02:00:00+01:00"}},
		"both hours of one day a year": {"Europe/Berlin", "*/59 2 31 10 *", "2027-10-31T02:00:00+02:00",
			[]string{"2027-10-31T02:59:00+02:00", "2027-10-31T02:00:00+01:00", "2027-10-31T02:59:00+01:00", "2028-10-31T02:00:00+01:00"}},
		"Lord Howe, both half hours of every other day": {"Australia/Lord_Howe", "*/20 0-1 * * */2", "2027-04-04T01:00:00+11:00",
			[]string{"2027-04-04T01:20:00+11:00", "2027-04-04T01:40:00+11:00", "2027-04-04T01:40:00+10:30", "2027-04-06T00:00:00+10:30"}},
		"New York, skipped": {"America/New_York", "30 2 * * *", "2027-03-13T12:00:00-05:00",
			[]string{"2027-03-14T03:00:00-04:00", "2027-03-15T02:30:00-04:00"}},
		"New York, twice": {"America/New_York", "30 1 * * *", "2027-11-06T12:00:00-04:00",
			[]string{"2027-11-07T01:30:00-04:00", "2027-11-08T01:30:00-05:00"}},
		"Lord Howe skips half an hour": {"Australia/Lord_Howe", "15 2 * * *", "2027-10-02T12:00:00+10:30",
			[]string{"2027-10-03T02:30:00+11:00", "2027-10-04T02:15:00+11:00"}},
		"Lord Howe repeats half an hour": {"Australia/Lord_Howe", "45 1 * * *", "2027-04-03T12:00:00+11:00",
			[]string{"2027-04-04T01:45:00+11:00", "2027-04-05T01:45:00+10:30"}},
		"St. John's": {"America/St_Johns", "30 2 * * *", "2027-03-13T12:00:00-03:30",
			[]string{"2027-03-14T03:00:00-02:30"}},
		"Apia skipped a whole day: once, when it was over": {"Pacific/Apia", "0 9,17 30 12 *", "2011-12-29T12:00:00-10:00",
			[]string{"2011-12-31T00:00:00+14:00", "2012-12-30T09:00:00+14:00"}},
		"Apia, elapsed time": {"Pacific/Apia", "0 */12 * * *", "2011-12-29T11:00:00-10:00",
			[]string{"2011-12-29T12:00:00-10:00", "2011-12-31T00:00:00+14:00"}},
		"seconds":                                {"UTC", "*/20 * * * * *", "2027-01-01T00:00:01Z", []string{"2027-01-01T00:00:20Z", "2027-01-01T00:00:40Z", "2027-01-01T00:01:00Z"}},
		"months without the day are passed over": {"UTC", "0 0 31 * *", "2027-01-31T00:00:00Z", []string{"2027-03-31T00:00:00Z", "2027-05-31T00:00:00Z"}},
		"both days restricted, either suffices":  {"UTC", "0 0 13 * FRI", "2027-08-01T00:00:00Z", []string{"2027-08-06T00:00:00Z", "2027-08-13T00:00:00Z", "2027-08-20T00:00:00Z"}},
		"a step of every day is no restriction":  {"UTC", "0 0 */2 * MON", "2027-08-01T00:00:00Z", []string{"2027-08-09T00:00:00Z", "2027-08-23T00:00:00Z"}},
		"the last day":                           {"UTC", "0 0 L * *", "2027-02-01T00:00:00Z", []string{"2027-02-28T00:00:00Z", "2027-03-31T00:00:00Z"}},
		"the last Friday":                        {"UTC", "0 0 * * 5L", "2027-08-01T00:00:00Z", []string{"2027-08-27T00:00:00Z", "2027-09-24T00:00:00Z"}},
		"the last Friday by name":                {"UTC", "0 0 * * FRIL", "2027-08-01T00:00:00Z", []string{"2027-08-27T00:00:00Z"}},
		"the second Tuesday":                     {"UTC", "0 0 * * 2#2", "2027-08-01T00:00:00Z", []string{"2027-08-10T00:00:00Z"}},
		"the weekday nearest to the 15th":        {"UTC", "0 0 15W * *", "2027-08-01T00:00:00Z", []string{"2027-08-16T00:00:00Z"}},
		"Thursday":                               {"UTC", "0 0 * * THU", "2027-08-01T00:00:00Z", []string{"2027-08-05T00:00:00Z", "2027-08-12T00:00:00Z"}},
		"a range up to Thursday":                 {"UTC", "0 0 * * Wed-THU", "2027-08-05T00:00:00Z", []string{"2027-08-11T00:00:00Z", "2027-08-12T00:00:00Z"}},
		"the last Thursday by name":              {"UTC", "0 0 * * THUL", "2027-08-01T00:00:00Z", []string{"2027-08-26T00:00:00Z"}},
		"the first Thursday of March":            {"UTC", "0 0 * MAR THU#1", "2027-01-01T00:00:00Z", []string{"2027-03-04T00:00:00Z"}},
		"7 is Sunday":                            {"UTC", "0 0 * * 7", "2027-08-02T00:00:00Z", []string{"2027-08-08T00:00:00Z"}},
		"@daily":                                 {"Europe/Berlin", "@daily", "2027-08-02T12:00:00+02:00", []string{"2027-08-03T00:00:00+02:00"}},
		"29 February":                            {"UTC", "0 0 29 2 *", "2027-08-02T00:00:00Z", []string{"2028-02-29T00:00:00Z", "2032-02-29T00:00:00Z"}},
		"31 December of a leap year after 2037":  {"America/New_York", "0 12 * * *", "2040-12-30T13:00:00-05:00", []string{"2040-12-31T12:00:00-05:00", "2041-01-01T12:00:00-05:00"}},
	} {
		t.Run(name, func(t *testing.T) {
			z := zone(t, c.zone)
			schedule, err := ParseCron(c.cron, z)
			require.NoError(t, err)
			at, err := time.Parse(time.RFC3339, c.after)
			require.NoError(t, err)
			for _, want := range c.want {
				var ok bool
				at, ok = schedule.Next(at)
				require.True(t, ok)
				require.Equal(t, want, at.In(z).Format(time.RFC3339))
			}
		})
	}
}

func TestShiftedTellsRunsThatDaylightSavingMoved(t *testing.T) {
	z := zone(t, "Europe/Berlin")
	schedule, err := ParseCron("30 2 * * *", z)
	require.NoError(t, err)
	require.True(t, schedule.Shifted(time.Date(2027, 3, 28, 3, 0, 0, 0, z)))
	require.False(t, schedule.Shifted(time.Date(2027, 3, 29, 2, 30, 0, 0, z)))
}

// TestRunsEqualASlowReference: over random expressions and zones, runs are those that a look at
// every single minute finds, and they rise strictly.
func TestRunsEqualASlowReference(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 2))
	for _, name := range []string{"Europe/Berlin", "America/New_York", "Australia/Lord_Howe", "America/St_Johns", "Pacific/Apia", "Antarctica/Troll", "Asia/Kolkata", "UTC"} {
		z := zone(t, name)
		for range 12 {
			year := 2027 + rng.IntN(5)
			if name == "Pacific/Apia" && rng.IntN(2) == 0 {
				year = 2011
			}
			expression := randomCron(rng)
			// Windows in which clocks change, in one zone or another.
			from := time.Date(year, []time.Month{2, 3, 9, 10, 12}[rng.IntN(5)], 20, 0, 0, 0, 0, z)
			to := from.AddDate(0, 0, 50)
			schedule, err := ParseCron(expression, z)
			require.NoError(t, err, expression)
			var got []int64
			for at := from.Add(-time.Second); ; {
				next, ok := schedule.Next(at)
				if !ok || !next.Before(to) {
					break
				}
				require.True(t, next.After(at), "%s: %v after %v", expression, next, at)
				got, at = append(got, next.Unix()), next
			}
			want := reference(t, expression, from, to)
			if !slices.Equal(want, got) {
				t.Fatalf("%q in %s, %d: %d runs, the reference has %d; %s", expression, name, year, len(got), len(want), firstDifference(want, got, z))
			}
		}
	}
}

func firstDifference(want, got []int64, z *time.Location) string {
	for i := range min(len(want), len(got)) {
		if want[i] != got[i] {
			return fmt.Sprintf("first difference: want %v, got %v", time.Unix(want[i], 0).In(z), time.Unix(got[i], 0).In(z))
		}
	}
	return "one ends earlier"
}

func randomCron(rng *rand.Rand) string {
	pick := func(low, high int) string {
		switch rng.IntN(5) {
		case 0:
			return "*"
		case 1:
			return "*/" + strconv.Itoa(2+rng.IntN(min(10, (high-low)/2)))
		case 2:
			a := low + rng.IntN(high-low)
			return fmt.Sprintf("%d-%d", a, a+1)
		default:
			return strconv.Itoa(low+rng.IntN(high-low+1)) + "," + strconv.Itoa(low+rng.IntN(high-low+1))
		}
	}
	hours := pick(0, 23)
	if rng.IntN(2) == 0 {
		hours = pick(0, 4) // where clocks change
	}
	return strings.Join([]string{pick(0, 59), hours, pick(1, 31), pick(1, 12), pick(0, 6)}, " ")
}

// reference looks at every minute: at every instant for an expression that follows elapsed time,
// and at every wall clock time for one that means local times.
func reference(t *testing.T, expression string, from, to time.Time) []int64 {
	t.Helper()
	fields := strings.Fields(expression)
	runs := map[int64]bool{}
	if strings.Contains(fields[0]+fields[1], "*") {
		for at := from; at.Before(to); at = at.Add(time.Minute) {
			if matches(fields, at) {
				runs[at.Unix()] = true
			}
		}
	} else {
		end := asUTC(to, offsetOf(to))
		for wall := asUTC(from, offsetOf(from)); wall.Before(end); wall = wall.Add(time.Minute) {
			if matches(fields, wall) {
				runs[firstInstant(wall, from.Location()).Unix()] = true
			}
		}
	}
	var all []int64
	for at := range runs {
		all = append(all, at)
	}
	slices.Sort(all)
	return all
}

// firstInstant is the first instant at which a zone's clocks show a time, or the end of the gap
// that skips it.
func firstInstant(wall time.Time, z *time.Location) time.Time {
	var first time.Time
	for probe := -30 * time.Hour; probe <= 30*time.Hour; probe += 30 * time.Minute {
		at := wall.Add(-offsetOf(wall.Add(probe).In(z)))
		if asUTC(at, offsetOf(at.In(z))).Equal(wall) && (first.IsZero() || at.Before(first)) {
			first = at
		}
	}
	if !first.IsZero() {
		return first
	}
	low, high := wall.Add(-30*time.Hour), wall.Add(30*time.Hour) // the gap's end lies between
	for high.Sub(low) > time.Second {
		middle := low.Add(high.Sub(low) / 2).Truncate(time.Second)
		if asUTC(middle, offsetOf(middle.In(z))).After(wall) {
			high = middle
		} else {
			low = middle
		}
	}
	return high.Truncate(time.Second)
}

func matches(fields []string, at time.Time) bool {
	day := contains(fields[2], at.Day(), 1)
	weekday := contains(fields[4], int(at.Weekday()), 0)
	days := day && weekday
	if !strings.HasPrefix(fields[2], "*") && !strings.HasPrefix(fields[4], "*") {
		days = day || weekday
	}
	return days && contains(fields[0], at.Minute(), 0) && contains(fields[1], at.Hour(), 0) && contains(fields[3], int(at.Month()), 1)
}

func contains(field string, value, low int) bool {
	for _, item := range strings.Split(field, ",") {
		step, isStep := strings.CutPrefix(item, "*/")
		from, to, isRange := strings.Cut(item, "-")
		a, _ := strconv.Atoi(from)
		b, _ := strconv.Atoi(to)
		n, _ := strconv.Atoi(step)
		switch {
		case item == "*", isStep && (value-low)%n == 0, isRange && a <= value && value <= b, !isRange && !isStep && a == value && item != "*":
			return true
		}
	}
	return false
}

func BenchmarkNext(b *testing.B) {
	berlin, _ := time.LoadLocation("Europe/Berlin")
	schedule, err := ParseCron("30 2 * * MON-FRI", berlin)
	if err != nil {
		b.Fatal(err)
	}
	at := time.Date(2027, 1, 1, 0, 0, 0, 0, time.UTC)
	for b.Loop() {
		at, _ = schedule.Next(at)
	}
}
