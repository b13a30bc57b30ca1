package console

import (
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// A browser chooses the zone of its times. No cookie makes a page say anything else, or fail.
func TestTimesAreInTheChosenZone(t *testing.T) {
	w := newWorld(t, true)
	b := w.as("operate")
	resp, _ := b.post("/targets", url.Values{"do": {"pause"}, "topic": {"orders"}, "until": {"2999-12-24T09:00"}, "confirmed": {"yes"}})
	require.Equal(t, http.StatusSeeOther, resp.StatusCode)
	resp, text := b.post("/zone", url.Values{"zone": {"Europe/Berlin"}, "back": {"/targets"}})
	require.Equal(t, http.StatusSeeOther, resp.StatusCode, text)
	require.Equal(t, "/targets", resp.Header.Get("Location"))
	_, text = b.get("/targets")
	require.Contains(t, text, `title="2999-12-24 09:00:00.000 UTC"`)
	require.Contains(t, text, `<span class="dim">2999-12-24 10:00:00.000 CET</span>`)
	require.Contains(t, text, "Times are Europe/Berlin.")
	_, text = b.get("/targets?" + url.Values{"do": {"pause"}, "topic": {"orders"}, "until": {"2999-12-25T09:00"}}.Encode())
	require.Contains(t, text, "<td>paused until 2999-12-24 10:00:00.000 CET</td><td><strong>paused until 2999-12-25 09:00:00.000 CET</strong>")
	require.Contains(t, text, `name="until" value="2999-12-25T08:00:00Z"`)
	for path, want := range map[string]string{"/find?do=cancel&from=": "due from ", "/deadletters?do=replay&since=": "since "} {
		_, text = b.get(path + "2999-12-25T09:00")
		require.Contains(t, text, want+"2999-12-25 09:00:00.000 CET</strong>", "a question has the times that were typed")
	}
	for name, want := range map[string]string{"2999-12-24T09:00": "09:00:00.000 CET", "72h": "3 d ago", "+2h": "in ", "soon": "tomorrow 9:00", "": ""} {
		_, text = b.post("/when", url.Values{"time": {name}})
		require.Contains(t, text, want)
		require.NotContains(t, text, "<html")
	}

	hostile := []string{"", "Local", "../../etc/passwd", "/etc/localtime", "right/UTC", `"><img src=x>`, "Europe/Nowhere", strings.Repeat("A", 4000), strings.Repeat("a/", 33)}
	for _, name := range hostile {
		resp, text = b.post("/zone", url.Values{"zone": {name}})
		require.Equal(t, http.StatusUnprocessableEntity, resp.StatusCode, name)
		require.NotContains(t, text, "<img")
		r := httptest.NewRequest(http.MethodGet, "/", nil)
		r.Header.Set("Cookie", zoneCookie+"="+name)
		require.Equal(t, time.UTC, zoneOf(r), name)
	}
	resp, _ = b.post("/zone", url.Values{"zone": {"UTC"}, "back": {"//elsewhere.example/"}})
	require.Equal(t, "/", resp.Header.Get("Location"))
}

func TestFewZonesHaveTemplates(t *testing.T) {
	for _, name := range []string{"Asia/Tokyo", "Asia/Seoul", "Asia/Dhaka", "Asia/Amman", "Asia/Aden", "Asia/Baku", "Asia/Gaza", "Asia/Dili", "Asia/Omsk", "Asia/Tokyo"} {
		at := pagesIn(zoneNamed(name))
		require.Len(t, at, len(pages), name)
	}
	require.LessOrEqual(t, len(zoned.pages), zonesKept)
}

// Times are read as people write them. A clock that a day does not have is refused or moved as
// those of requests are.
func TestSpokenTimes(t *testing.T) {
	berlin := zoneNamed("Europe/Berlin")
	now := time.Date(2026, 12, 31, 23, 30, 0, 0, berlin)
	for text, want := range map[string]string{
		"+2h": "2027-01-01T01:30:00+01:00", "+90m": "2027-01-01T01:00:00+01:00", "+1d": "2027-01-01T23:30:00+01:00", "+0s": "2026-12-31T23:30:00+01:00",
		"tomorrow 9:00": "2027-01-01T09:00:00+01:00", "Tomorrow 18:05": "2027-01-01T18:05:00+01:00", "today 23:59": "2026-12-31T23:59:00+01:00", "9:00": "2026-12-31T09:00:00+01:00",
	} {
		at, ok := spoken(text, now)
		require.True(t, ok, text)
		require.Equal(t, want, at.Format(time.RFC3339), text)
	}
	for _, text := range []string{"", "+", "+h", "+-2h", "+-1d", "+99999999d", "+d", "tomorrow", "tomorrow 25:00", "yesterday 9:00", "9", "tomorrow 9:00 11"} {
		_, ok := spoken(text, now)
		require.False(t, ok, text)
	}
	night := time.Date(2027, 9, 4, 0, 30, 0, 0, zoneNamed("America/Santiago")) // the next day begins at 1:00
	for text, want := range map[string]string{"+1d": "2027-09-05T01:00:00-03:00", "tomorrow 9:00": "2027-09-05T09:00:00-03:00", "tomorrow 0:30": "2027-09-05T01:00:00-03:00", "9:00": "2027-09-04T09:00:00-04:00"} {
		at, ok := spoken(text, night)
		require.True(t, ok, text)
		require.Equal(t, want, at.Format(time.RFC3339), text)
	}
	r := httptest.NewRequest(http.MethodGet, "/?"+url.Values{"at": {"+2h"}, "from": {"2h"}, "to": {"2026-12-24T09:00"}}.Encode(), nil)
	r.AddCookie(&http.Cookie{Name: zoneCookie, Value: "Europe/Berlin"})
	for name, want := range map[string]time.Time{"at": time.Now().Add(2 * time.Hour), "from": time.Now().Add(-2 * time.Hour), "to": time.Date(2026, 12, 24, 9, 0, 0, 0, berlin)} {
		at, err := instant(r, name)
		require.NoError(t, err)
		require.InDelta(t, want.UnixMilli(), at.Millis(), 60_000, name)
	}
}

// A time before 1970 is a mistake of its field, and none of the service.
func TestATimeBefore1970IsAMistakeOfItsField(t *testing.T) {
	w := newWorld(t, true)
	b := w.as("admin")
	for _, path := range []string{"/deadletters?do=purge&until=", "/targets?do=pause&topic=orders&until=", "/find?to="} {
		for _, at := range []string{"1970-01-01T01:00:00+01:00", "1914-07-28T11:00"} {
			resp, text := b.get(path + url.QueryEscape(at))
			require.Equal(t, http.StatusUnprocessableEntity, resp.StatusCode, text)
			require.Regexp(t, `data-field="(until|to)">(until|to) is not after 1970`, text)
		}
	}
}

func BenchmarkPagesOfAnotherZone(b *testing.B) {
	for b.Loop() {
		parsePages(time.UTC)
	}
}
