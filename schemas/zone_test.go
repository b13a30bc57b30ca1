package schemas

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// TestLocalTimes: one that daylight saving skips is the instant at which the gap ends, one that comes
// twice is the first.
func TestLocalTimes(t *testing.T) {
	for _, c := range []struct{ zone, local, want string }{
		{"Europe/Berlin", "2027-12-24T09:00", "2027-12-24T09:00:00+01:00"},
		{"Europe/Berlin", "2027-07-24t09:00:30", "2027-07-24T09:00:30+02:00"},
		{"Europe/Berlin", "2027-07-24T09:00:30.5", "2027-07-24T09:00:30.5+02:00"},
		{"Europe/Berlin", "2027-07-24T09:00:30.0000000001", "2027-07-24T09:00:30.001+02:00"},
		{"Europe/Berlin", "2027-03-28T01:59:59.999", "2027-03-28T01:59:59.999+01:00"},
		{"Europe/Berlin", "2027-03-28T02:00", "2027-03-28T03:00:00+02:00"},
		{"Europe/Berlin", "2027-03-28T02:30:15.25", "2027-03-28T03:00:00+02:00"},
		{"Europe/Berlin", "2027-03-28T03:00", "2027-03-28T03:00:00+02:00"},
		{"Europe/Berlin", "2027-03-28T03:01", "2027-03-28T03:01:00+02:00"},
		{"Europe/Berlin", "2027-10-31T01:59", "2027-10-31T01:59:00+02:00"},
		{"Europe/Berlin", "2027-10-31T02:00", "2027-10-31T02:00:00+02:00"},
		{"Europe/Berlin", "2027-10-31T02:30", "2027-10-31T02:30:00+02:00"},
		{"Europe/Berlin", "2027-10-31T03:00", "2027-10-31T03:00:00+01:00"},
		{"America/New_York", "2027-11-07T01:30", "2027-11-07T01:30:00-04:00"},
		{"America/Havana", "2027-03-14T00:30", "2027-03-14T01:00:00-04:00"},
		{"Australia/Lord_Howe", "2027-10-03T02:15", "2027-10-03T02:30:00+11:00"},
		{"Australia/Lord_Howe", "2027-04-04T01:45", "2027-04-04T01:45:00+11:00"},
		{"Antarctica/Troll", "2027-03-28T01:30", "2027-03-28T03:00:00+02:00"},
		{"Pacific/Apia", "2011-12-30T12:00", "2011-12-31T00:00:00+14:00"},
		{"Pacific/Kiritimati", "2027-01-01T00:00", "2027-01-01T00:00:00+14:00"},
		{"Pacific/Niue", "2027-01-01T00:00", "2027-01-01T00:00:00-11:00"},
		{"Asia/Kathmandu", "2027-01-01T00:00", "2027-01-01T00:00:00+05:45"},
		{"UTC", "2028-02-29T00:00", "2028-02-29T00:00:00Z"},
		// On 31 December of leap years after 2037 package time is wrong about the period.
		{"America/New_York", "2040-12-31T12:00", "2040-12-31T12:00:00-05:00"},
		{"America/New_York", "2041-01-01T01:00", "2041-01-01T01:00:00-05:00"},
	} {
		at, err := LocalTime(c.local, c.zone)
		require.NoError(t, err, c.local)
		require.Equal(t, c.want, at.Format(time.RFC3339Nano), "%s in %s", c.local, c.zone)

		r := intake(HeaderTopic, "orders", HeaderTimezone, c.zone, HeaderAt, c.local)
		req, err := Decode(r, Limits{MaxDelay: 100 * 365 * 24 * time.Hour})
		require.NoError(t, err, c.local)
		require.Equal(t, at.UnixMilli(), req.Due)
		require.Zero(t, req.Timer, "a task has no time zone")
	}
	for _, c := range []struct{ zone, local string }{{"Europe/Berlin", "2027-12-24T09:00:00Z"}, {"Europe/Berlin", "1790000060000"}, {"Europe/Berlin", "2027-12-24"}, {"Local", "2027-12-24T09:00"}, {"", "2027-12-24T09:00"}} {
		_, err := LocalTime(c.local, c.zone)
		require.Error(t, err, c.local)
	}
}

// TestEveryLocalTimeOfAZone: five minutes apart, over the changes of a year, local times are the instants
// at which the clocks show them first, or first show a later one.
func TestEveryLocalTimeOfAZone(t *testing.T) {
	for _, name := range []string{"Europe/Berlin", "America/Havana", "Australia/Lord_Howe", "Antarctica/Troll", "Africa/Casablanca"} {
		zone, err := time.LoadLocation(name)
		require.NoError(t, err)
		const shows = "2006-01-02T15:04"
		shown := map[string]time.Time{}
		begin := time.Date(2027, 1, 1, 0, 0, 0, 0, zone)
		for at := begin; at.Year() == 2027; at = at.Add(5 * time.Minute) {
			if text := at.Format(shows); shown[text].IsZero() {
				shown[text] = at
			}
		}
		var gapEnds time.Time
		for wall := time.Date(2027, 12, 31, 23, 55, 0, 0, time.UTC); wall.Year() == 2027; wall = wall.Add(-5 * time.Minute) {
			want := shown[wall.Format(shows)]
			if want.IsZero() {
				want = gapEnds
			}
			gapEnds = want
			require.True(t, firstInstant(wall, zone).Equal(want), "%v in %s", wall, name)
		}
	}
}

// TestBoundsOfTimersAreLocalInTheirZone: whatever stands first.
func TestBoundsOfTimersAreLocalInTheirZone(t *testing.T) {
	r := operation("timer", HeaderFrom, "2027-03-28T02:30", HeaderUntil, "2027-10-31T02:30", HeaderTimezone, "Europe/Berlin", HeaderCron, "@daily")
	req, err := Decode(r, Limits{})
	require.NoError(t, err)
	require.Equal(t, "2027-03-28T01:00:00Z", time.UnixMilli(*req.Timer.From).UTC().Format(time.RFC3339))
	require.Equal(t, "2027-10-31T00:30:00Z", time.UnixMilli(*req.Timer.Until).UTC().Format(time.RFC3339))
	require.Equal(t, "Europe/Berlin", req.Timer.Timezone)
	again, err := req.Record(TopicIntake)
	require.NoError(t, err)
	same, err := Decode(again, Limits{})
	require.NoError(t, err)
	require.Equal(t, req.Timer, same.Timer)
}

// TestTimeZonesAreIANANames: of every form that there is.
func TestTimeZonesAreIANANames(t *testing.T) {
	for _, name := range []string{"UTC", "Europe/Berlin", "America/Argentina/ComodRivadavia", "Etc/GMT+12", "Etc/GMT-14", "EST5EDT", "NZ-CHAT", "America/Port-au-Prince", "Antarctica/DumontDUrville", "Africa/Porto-Novo"} {
		zone, rej := parseZone([]byte(name))
		require.Nil(t, rej, name)
		require.Equal(t, name, zone.String())
	}
	for _, name := range []string{"", "Europe/Nowhere", "Local", "../etc/passwd", "Europe/./Berlin", "Europe//Berlin", "localtime", "posixrules", "posix/Europe/Berlin", "right/Europe/Berlin", "UTC\x00", "+01:00"} {
		_, rej := parseZone([]byte(name))
		require.NotNil(t, rej, name)
	}
}
