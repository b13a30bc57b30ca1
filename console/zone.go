package console

import (
	"errors"
	"html/template"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/notyet/notyet/api"
	"github.com/notyet/notyet/schemas"
)

const (
	zoneCookie = "notyet_zone"
	zoneLife   = 365 * 24 * time.Hour
	zoneBytes  = 64
	// zonesKept bounds the zones whose templates are kept: a browser may name one after the other.
	zonesKept = 8
)

// zoneOf returns the zone that the browser has chosen. Its cookie may say anything.
func zoneOf(r *http.Request) *time.Location {
	if cookie, err := r.Cookie(zoneCookie); err == nil {
		if zone := zoneNamed(cookie.Value); zone != nil {
			return zone
		}
	}
	return time.UTC
}

// zoneNamed returns nil for a name that is no zone's.
func zoneNamed(name string) *time.Location {
	if len(name) > zoneBytes {
		return nil
	}
	at, err := schemas.LocalTime("2000-01-01T00:00", name)
	if err != nil {
		return nil
	}
	return at.Location()
}

// chooseZone leads back to where the form was, with a cookie.
func chooseZone(r *http.Request) (view, error) {
	zone := zoneNamed(strings.TrimSpace(r.PostFormValue("zone")))
	if zone == nil {
		return view{}, badForm("zone", "is not a time zone: write an IANA name such as Europe/Berlin, or UTC")
	}
	return view{to: local(r.PostFormValue("back")), zone: zone.String()}, nil
}

var zoned struct {
	sync.Mutex
	pages map[string]map[string]*template.Template
}

// pagesIn are the templates that write times in a zone.
func pagesIn(zone *time.Location) map[string]*template.Template {
	if zone == time.UTC || zone.String() == "UTC" {
		return pages
	}
	zoned.Lock()
	defer zoned.Unlock()
	out, ok := zoned.pages[zone.String()]
	if !ok {
		if out = parsePages(zone); zoned.pages == nil || len(zoned.pages) >= zonesKept {
			zoned.pages = map[string]map[string]*template.Template{}
		}
		zoned.pages[zone.String()] = out
	}
	return out
}

// clockIn is a time on the clocks of a zone.
func clockIn(zone *time.Location, ms int64) string {
	return time.UnixMilli(ms).In(zone).Format("2006-01-02 15:04:05.000 MST")
}

// said is a field's value for people: a time is on the clocks of the zone.
func (f field) said(zone *time.Location) string {
	if slices.Contains([]string{"from", "to", "since", "until"}, f.Name) {
		if at, err := time.Parse(time.RFC3339Nano, f.Value); err == nil {
			return clockIn(zone, at.UnixMilli())
		}
	}
	return f.Value
}

// instant reads a field: a time as parseWhen does, or how long ago it was.
func instant(r *http.Request, name string) (at api.Instant, err error) {
	text := strings.TrimSpace(r.FormValue(name))
	if text == "" {
		return at, nil
	}
	if ago, err := time.ParseDuration(text); err == nil && ago > 0 && text[0] != '+' {
		return api.At(time.Now().Add(-ago).UnixMilli()), nil
	}
	when, err := parseWhen(zoneOf(r), name, text)
	if err != nil {
		return at, err
	}
	if err := at.UnmarshalText([]byte(when)); err != nil {
		return at, badForm(name, err.Error())
	}
	return at, nil
}

// parseWhen reads a time as a person or a browser's form writes it: RFC 3339, Unix ms, a time of
// the zone, +2h, or tomorrow 9:00.
func parseWhen(zone *time.Location, name, text string) (string, error) {
	ms, rej := schemas.ParseTime(text)
	if rej != nil {
		at, err := schemas.LocalTime(text, zone.String())
		if said, ok := spoken(text, time.Now().In(zone)); ok {
			at, err = said, nil
		}
		if wrong, ok := errors.AsType[*schemas.Rejection](err); ok {
			return "", badForm(name, wrong.Problem+": "+wrong.Fix+", or +2h, or tomorrow 9:00")
		}
		ms = at.UnixMilli()
	}
	return time.UnixMilli(ms).UTC().Format(time.RFC3339Nano), nil
}

// spoken reads a time from now on, and a clock of today or tomorrow.
func spoken(text string, now time.Time) (time.Time, bool) {
	if later, ok := strings.CutPrefix(text, "+"); ok {
		if days, err := strconv.ParseUint(strings.TrimSuffix(later, "d"), 10, 16); err == nil && strings.HasSuffix(later, "d") {
			return onDay(now, int(days), now.Format("T15:04:05.000"))
		}
		d, err := time.ParseDuration(later)
		return now.Add(d), err == nil && d >= 0
	}
	day, clock, found := strings.Cut(text, " ")
	if !found {
		day, clock = "today", text
	}
	at, err := time.Parse("15:04", strings.TrimSpace(clock))
	days, known := map[string]int{"today": 0, "tomorrow": 1}[strings.ToLower(day)]
	if err != nil || !known {
		return now, false
	}
	return onDay(now, days, at.Format("T15:04"))
}

// onDay is a clock so many days on. Days are counted without the zone: where midnight is skipped,
// the zone's 0:30 a day later is the evening before.
func onDay(now time.Time, days int, clock string) (time.Time, bool) {
	day := time.Date(now.Year(), now.Month(), now.Day()+days, 0, 0, 0, 0, time.UTC).Format("2006-01-02")
	due, err := schemas.LocalTime(day+clock, now.Location().String())
	return due, err == nil
}

type whenData struct {
	At    int64
	Wrong string
}

// when answers with a field's time alone, for the script, during the typing.
func when(r *http.Request) (view, error) {
	at, err := instant(r, "time")
	return view{page: "when", bare: true, data: whenData{at.Millis(), text(err)}}, nil
}
