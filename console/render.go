package console

import (
	"bytes"
	"embed"
	"fmt"
	"html/template"
	"io/fs"
	"math"
	"net/http"
	"path"
	"reflect"
	"strconv"
	"strings"
	"time"
	"unicode"

	"github.com/notyet/notyet/internal/access"
)

//go:embed pages
var sources embed.FS

// pages are the templates by name, each with the layout.
var pages = parsePages(time.UTC)

func parsePages(zone *time.Location) map[string]*template.Template {
	layout := template.Must(template.New("layout.html").Funcs(funcs).Funcs(template.FuncMap{"clock": func(ms int64) string { return clockIn(zone, ms) }}).ParseFS(sources, "pages/layout.html"))
	files, err := fs.Glob(sources, "pages/*.html")
	if err != nil {
		panic(err) // the pattern is ours
	}
	out := map[string]*template.Template{}
	for _, f := range files {
		name := strings.TrimSuffix(path.Base(f), ".html")
		out[name] = template.Must(template.Must(layout.Clone()).ParseFS(sources, f))
	}
	return out
}

type view struct {
	page  string // name of the template
	title string
	data  any
	to    string // redirect there instead
	// outcome is shown by the page at to. nil: nothing is to be said.
	outcome *outcome
	bare    bool   // only the content, for the script
	missing []int  // databases that do not answer
	still   bool   // the page changes no more
	zone    string // that the browser is to keep
}

type shown struct {
	Title    string
	Page     string
	Sections []section
	Caller   access.Caller
	Operate  bool
	Admin    bool
	Signed   bool   // in by a session: can sign out
	Age      string // live: the script refreshes the page; still: it shows the page's age; "": a form
	Version  string
	Now      time.Time
	Zone     string
	Back     string // this page
	Outcome  *outcome
	Missing  []int // databases that do not answer
	Data     any
}

type section struct {
	Path, Name string
	Key        string // goes there after g
	Here       bool
}

var sections = []section{
	{Path: "/", Name: "Overview", Key: "o"}, {Path: "/find", Name: "Find", Key: "f"}, {Path: "/targets", Name: "Targets", Key: "t"}, {Path: "/timers", Name: "Timers", Key: "i"},
	{Path: "/deadletters", Name: "Dead letters", Key: "d"}, {Path: "/operations", Name: "Operations", Key: "p"}, {Path: "/cluster", Name: "Cluster", Key: "c"}, {Path: "/audit", Name: "Audit", Key: "a"},
}

// ages are of the pages that can become old. A walk through many tasks is not repeated by itself.
var ages = map[string]string{
	"overview": "live", "task": "live", "targets": "live", "timer": "live", "cluster": "live", "operations": "live", "operation": "live",
	"find": "still", "timers": "still", "deadletters": "still", "deadletter": "still", "audit": "still",
}

var sectionOf = map[string]string{"/task": "/find", "/timer": "/timers", "/deadletter": "/deadletters", "/operation": "/operations"}

func (c *Console) render(w http.ResponseWriter, r *http.Request, status int, v view) {
	if v.to != "" {
		if v.zone != "" {
			http.SetCookie(w, &http.Cookie{Name: zoneCookie, Value: v.zone, Path: "/", MaxAge: int(zoneLife.Seconds()), HttpOnly: true, SameSite: http.SameSiteLaxMode})
		}
		if v.outcome != nil {
			v.to = v.outcome.leave(w, r, v.to)
		}
		http.Redirect(w, r, v.to, http.StatusSeeOther)
		return
	}
	caller := access.From(r.Context())
	s := shown{
		Title: v.title, Page: v.page, Caller: caller, Operate: caller.May(access.Operate), Admin: caller.May(access.Admin),
		Signed: signed(r.Context()), Version: c.version, Now: time.Now(), Outcome: leftOutcome(r), Missing: v.missing, Data: v.data,
		Zone: zoneOf(r).String(), Back: "/",
	}
	if r.Method == http.MethodGet {
		s.Back = r.URL.RequestURI()
	}
	if r.Method == http.MethodGet && status == http.StatusOK {
		if s.Age = ages[v.page]; v.still {
			s.Age = "still"
		}
	}
	here := r.URL.Path
	if of, ok := sectionOf[here]; ok {
		here = of
	}
	for _, x := range sections {
		x.Here = x.Path == here
		s.Sections = append(s.Sections, x)
	}
	write(w, status, v, s, zoneOf(r))
}

// write sends a page, or nothing of a broken one.
func write(w http.ResponseWriter, status int, v view, s shown, zone *time.Location) {
	var out bytes.Buffer
	name := "layout"
	if v.bare {
		name = "content"
	}
	if err := pagesIn(zone)[v.page].ExecuteTemplate(&out, name, s); err != nil {
		http.Error(w, "the page "+v.page+" cannot be made: "+err.Error(), http.StatusInternalServerError)
		return
	}
	protect(w.Header())
	w.Header().Set("Content-Type", "text/html; charset=utf-8")
	w.WriteHeader(status)
	_, _ = w.Write(out.Bytes())
}

// protect limits a page: run our script, show our styles, send forms to us, and nothing else.
func protect(h http.Header) {
	h.Set("Content-Security-Policy", "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; form-action 'self'; frame-ancestors 'none'; base-uri 'none'")
	h.Set("X-Content-Type-Options", "nosniff")
	h.Set("Referrer-Policy", "same-origin") // with no-referrer, forms would come with Origin: null
	h.Set("Cache-Control", "no-store")
}

// cardRows is how many items a card of the overview shows.
const cardRows = 10

var funcs = template.FuncMap{
	"counted":   counted,
	"utc":       utc,
	"minute":    func(ms int64) string { return time.UnixMilli(ms).UTC().Format("15:04") },
	"machine":   func(ms int64) string { return time.UnixMilli(ms).UTC().Format(time.RFC3339Nano) },
	"relative":  func(ms int64) string { return relative(time.Until(time.UnixMilli(ms))) },
	"taskPath":  taskPath,
	"timerPath": timerPath,
	"visible":   visible,
	"digits":    digits,
	"first": func(all any) any { // of a slice, for a card
		v := reflect.ValueOf(all)
		return v.Slice(0, min(v.Len(), cardRows)).Interface()
	},
	"others":   func(listed, others int) int { return max(listed-cardRows, 0) + others },
	"short":    short,
	"lasting":  lasting,
	"written":  written,
	"lateness": func(ms int64) string { return lasting(float64(ms)) },
	"orNone": func(f *float64) string {
		if f == nil {
			return "none"
		}
		return lasting(*f)
	},
}

// short is a number with four digits, or a whole one.
func short(f float64) string {
	if f >= 1000 {
		return digits(int64(math.Round(f)))
	}
	return strconv.FormatFloat(f, 'g', 4, 64)
}

// lasting is a number of milliseconds in the unit that suits.
func lasting(ms float64) string {
	switch {
	case ms < 1000:
		return short(ms) + " ms"
	case ms < 2*60_000:
		return strconv.FormatFloat(ms/1000, 'g', 3, 64) + " s"
	case ms < 2*3_600_000:
		return fmt.Sprintf("%.0f min", ms/60_000)
	}
	return digits(int64(math.Round(ms/3_600_000))) + " h"
}

func utc(ms int64) string { return clockIn(time.UTC, ms) }

// counted shows a number of held tasks. The API counts up to 1000.
func counted(held int) string {
	if held >= 1000 {
		return "1000 or more"
	}
	return strconv.Itoa(held)
}

// relative is a duration from now in words, such as "in 5 m" or "3 s ago".
func relative(d time.Duration) string {
	form := "in %s"
	if d < 0 {
		form, d = "%s ago", -d
	}
	var text string
	switch {
	case d < time.Second:
		return "now"
	case d < 2*time.Minute:
		text = fmt.Sprintf("%d s", int(d.Seconds()))
	case d < 2*time.Hour:
		text = fmt.Sprintf("%d min", int(d.Minutes()))
	case d < 48*time.Hour:
		text = fmt.Sprintf("%d h", int(d.Hours()))
	default:
		text = fmt.Sprintf("%d d", int(d.Hours()/24))
	}
	return fmt.Sprintf(form, text)
}

// visible shows characters that would hide or reorder text: control characters, marks without a
// form of their own, and bytes beyond UTF-8.
func visible(s string) string {
	var b strings.Builder
	for _, r := range strings.ToValidUTF8(s, "\uFFFD") {
		if !unicode.IsGraphic(r) {
			fmt.Fprintf(&b, "\\u%04x", r)
			continue
		}
		b.WriteRune(r)
	}
	return b.String()
}

// digits groups a whole number by thousands.
func digits(n int64) string {
	s := fmt.Sprint(n)
	for i := len(s) - 3; i > 0 && s[i-1] != '-'; i -= 3 {
		s = s[:i] + "\u202f" + s[i:]
	}
	return s
}
