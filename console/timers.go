package console

import (
	"cmp"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"maps"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/notyet/notyet/api"
	"github.com/notyet/notyet/internal/access"
	"github.com/notyet/notyet/schemas"
)

type timersData struct {
	Topic, Prefix string
	Timers        []api.Timer
	Next          string
	Form          timerForm
}

type timerForm struct {
	Topic, ID, Cron, Every, Timezone, Jitter, Key, Value string
	Set                                                  bool // the timer exists: an empty field leaves what it has
}

type previewData struct {
	Runs  []api.Run
	Wrong string
}

func (c *Console) timers(r *http.Request) (view, error) {
	d := timersData{Topic: strings.TrimSpace(r.FormValue("topic")), Prefix: r.FormValue("prefix")}
	q := url.Values{"limit": {"50"}, "topic": {d.Topic}, "id-prefix": {d.Prefix}, "cursor": {r.FormValue("cursor")}}
	var page api.Timers
	err := c.inside.get(r.Context(), "/timers", q, &page)
	d.Timers, d.Next = page.Timers, next(r, "/timers", page.Cursor, "topic", "prefix")
	return view{page: "timers", title: "Timers", data: d}, err
}

type timerData struct {
	Timer   api.Timer
	Form    timerForm
	Content *content
	Preview previewData
	River   *river
	Last    []api.AuditedRun // the latest first
	Dots    []dot            // the same, the oldest first
	Kinds   []runKind
	LastErr string
}

func (c *Console) timer(r *http.Request) (view, error) {
	if r.FormValue("do") != "" {
		return c.changeTimer(r)
	}
	d := timerData{}
	topic, id := r.FormValue("topic"), r.FormValue("id")
	err := c.inside.get(r.Context(), timerAPI(topic, id), nil, &d.Timer)
	if err != nil {
		return view{}, err
	}
	d.Content = newContent(d.Timer.Content)
	d.Form = timerForm{Cron: d.Timer.Cron, Every: d.Timer.Every, Timezone: d.Timer.Timezone, Jitter: d.Timer.Jitter, Set: true}
	if d.Timer.Next > 0 {
		definition := map[string]any{"cron": d.Timer.Cron, "every": d.Timer.Every, "from": d.Timer.Next, "until": d.Timer.Until}
		if d.Timer.Cron != "" {
			definition["timezone"] = d.Timer.Timezone
		}
		d.Preview = c.runs(r, definition)
	}
	d.River, d.Last, err = c.audited(r, topic, id, d.Preview.Runs)
	d.LastErr, d.Dots, d.Kinds = text(err), newDots(zoneOf(r), topic, d.Last), runKinds
	return view{page: "timer", title: "Timer " + id, data: d}, nil
}

const (
	day = 24 * 3_600_000
	// shownRuns is how many of the last runs a timer's page shows, and riverRuns how many of them
	// its river may have. As many come, or more.
	shownRuns = 20
	riverRuns = 400
)

// audited returns the river of a timer, and its last runs, the latest first. The runs ahead tell
// how far back to look, and a day is enough for a timer that runs in bursts.
func (c *Console) audited(r *http.Request, topic, id string, ahead []api.Run) (v *river, last []api.AuditedRun, err error) {
	every := int64(day)
	if n := int64(len(ahead)); n > 1 {
		every = (ahead[n-1].At - ahead[0].At) / (n - 1)
	}
	now := time.Now().UnixMilli()
	v = newRiver(now, reachOfTimer(every), zoneOf(r))
	for back := every * (shownRuns + 1); ; back = day {
		var page api.TimerAudit
		from := max(min(now-back, max(v.begin, now-every*riverRuns)), 1)
		if err := c.inside.get(r.Context(), timerAPI(topic, id)+"/audit", url.Values{"from": {digitsOf(from)}, "to": {digitsOf(v.end())}}, &page); err != nil {
			return nil, nil, err
		}
		last = slices.DeleteFunc(slices.Clone(page.Runs), func(run api.AuditedRun) bool {
			return run.State == "coming" || run.State == "not_expected" || run.State == "pending" && run.At > now
		})
		if len(last) >= shownRuns || back >= day {
			v.runs(page.Runs, page.Next)
			break
		}
	}
	slices.Reverse(last)
	return v, last[:min(len(last), shownRuns)], nil
}

func timerAPI(topic, id string) string {
	return "/timers/" + api.Segment(topic) + "/" + api.Segment(id)
}

func timerPath(topic, id string) string {
	return "/timer?" + url.Values{"topic": {topic}, "id": {id}}.Encode()
}

// preview answers with the runs alone, for the script, during the typing of a timer.
func (c *Console) preview(r *http.Request) (view, error) {
	f := readTimer(r)
	d := previewData{}
	if f.Cron+f.Every != "" {
		was, _ := c.existing(r, f)
		d = c.runs(r, f.over(was).definition(was))
	}
	return view{page: "preview", bare: true, data: d}, nil
}

func (c *Console) runs(r *http.Request, definition map[string]any) previewData {
	maps.DeleteFunc(definition, func(_ string, v any) bool { return v == "" || v == int64(0) })
	definition["count"] = 10
	var out api.Previewed
	_, err := c.inside.call(r.Context(), http.MethodPost, "/timers/preview", definition, &out)
	return previewData{Runs: out.Runs, Wrong: text(err)}
}

func readTimer(r *http.Request) timerForm {
	trim := func(name string) string { return strings.TrimSpace(r.FormValue(name)) }
	f := timerForm{Topic: trim("topic"), ID: trim("id"), Cron: trim("cron"), Every: trim("every"), Timezone: trim("timezone"), Jitter: trim("jitter"), Key: r.FormValue("key"), Value: lines(r.FormValue("value"))}
	if f.Set = r.FormValue("exists") != ""; f.Set || r.FormValue("do") != "set" { // nobody typed the name: blanks at its ends are part of it
		f.Topic, f.ID = r.FormValue("topic"), r.FormValue("id")
	}
	return f
}

// existing returns the timer that a form names. nil: there is none yet.
func (c *Console) existing(r *http.Request, f timerForm) (*api.Timer, error) {
	if f.Topic == "" || f.ID == "" {
		return nil, nil
	}
	var t api.Timer
	err := c.inside.get(r.Context(), timerAPI(f.Topic, f.ID), nil, &t)
	if err != nil && asProblem(err).Status == http.StatusNotFound {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	return &t, nil
}

// over fills what the form leaves empty from the timer that it changes. nil: it makes a new one.
func (f timerForm) over(was *api.Timer) timerForm {
	if was == nil {
		return f
	}
	if f.Cron+f.Every == "" {
		f.Cron, f.Every = was.Cron, was.Every
	}
	f.Timezone, f.Jitter = cmp.Or(f.Timezone, was.Timezone), cmp.Or(f.Jitter, was.Jitter)
	if f.Every != "" && f.Timezone == was.Timezone {
		f.Timezone = "" // it means nothing there
	}
	return f
}

// definition says when the filled form's timer runs.
func (f timerForm) definition(was *api.Timer) map[string]any {
	out := map[string]any{"cron": f.Cron, "every": f.Every, "timezone": f.Timezone}
	if was != nil {
		if was.From > time.Now().UnixMilli() { // one that has passed would end the rhythm of every
			out["from"] = was.From
		}
		if was.Until > 0 {
			out["until"] = was.Until
		}
	}
	maps.DeleteFunc(out, empty)
	return out
}

// request sets the filled form's timer, and repeats what the form is not about.
func (f timerForm) request(was *api.Timer) map[string]any {
	out := map[string]any{"value": f.Value}
	if was != nil {
		out = unchanged(was.Settings, was.Content)
		if out["misfire"] = was.Misfire; was.Overlap != schemas.OverlapAllow.String() {
			out["overlap"] = was.Overlap
		}
		if was.Version != nil { // a newer one that is on its way makes this request stale
			out["version"] = *was.Version
		}
		if f.Value != "" {
			out["value"], out["value_base64"] = f.Value, ""
		}
	}
	if f.Key != "" {
		out["key"], out["key_base64"] = f.Key, ""
	}
	out["jitter"] = f.Jitter
	maps.DeleteFunc(out, func(name string, v any) bool { return name != "value" && v == "" })
	maps.Copy(out, f.definition(was))
	return out
}

// replaces shows what the filled form changes.
func (f timerForm) replaces(was *api.Timer) []replaced {
	key, value, _, _ := was.Bytes()
	stays := func(typed string, was []byte) replaced {
		now, _ := readable(was)
		now = beginning(now)
		if typed == "" {
			return replaced{Was: now, Becomes: now}
		}
		return replaced{Was: now, Becomes: beginning(typed)}
	}
	rhythm := func(cron, every string) string {
		if every != "" {
			return "every " + every
		}
		return cron
	}
	out := []replaced{
		{"Runs", rhythm(was.Cron, was.Every), rhythm(f.Cron, f.Every)}, {"Time zone", was.Timezone, cmp.Or(f.Timezone, "UTC")}, {"Jitter", cmp.Or(was.Jitter, "none"), cmp.Or(f.Jitter, "none")},
		stays(f.Key, key), stays(f.Value, value),
	}
	out[3].What, out[4].What = "Key", "Value"
	return out
}

// beginning is the first part of a longer text.
func beginning(text string) string {
	const most = 200
	if len(text) <= most {
		return text
	}
	return strings.ToValidUTF8(text[:most], "") + "…"
}

// seen tells whether a timer is still the one that a question was about.
func seen(t *api.Timer) string {
	if t == nil {
		return ""
	}
	now := *t
	now.Next = 0
	data, _ := json.Marshal(now)
	sum := sha256.Sum256(data)
	return hex.EncodeToString(sum[:8])
}

var timerActions = map[string]string{"set": "Set this timer", "enable": "Enable this timer", "disable": "Disable this timer", "delete": "Delete this timer", "run": "Make this run", "backfill": "Make the missing runs"}

// changeTimer sets, enables, disables or deletes a timer, after a question with the name. The
// question of a timer to be set shows its runs, and what it replaces.
func (c *Console) changeTimer(r *http.Request) (view, error) {
	f, do := readTimer(r), r.FormValue("do")
	what, known := timerActions[do]
	if !known {
		return view{}, badForm("do", "is none of set, enable, disable, delete, run and backfill")
	}
	if f.Topic == "" || f.ID == "" {
		return view{}, badForm("topic and id", "name a timer: both are needed")
	}
	if err := needs(r, access.Operate); err != nil {
		return view{}, err
	}
	switch do {
	case "set":
		return c.setTimer(r, f)
	case "run":
		return c.runTimer(r, f)
	case "backfill":
		return c.backfillTimer(r, f)
	}
	back, path := timerPath(f.Topic, f.ID), timerAPI(f.Topic, f.ID)
	if !confirmed(r) {
		conf := confirmation{What: what, Name: f.Topic + " " + f.ID, Path: "/timer", Back: back, Danger: do == "delete", Fields: []field{{"do", do}, {"topic", f.Topic}, {"id", f.ID}}}
		if do == "delete" {
			conf.Keep = "Keep it"
		}
		return view{page: "confirm", title: what, data: conf}, nil
	}
	method := http.MethodPost
	if do == "delete" {
		method, back = http.MethodDelete, "/timers"
	} else {
		path += "/" + do
	}
	var e api.Event
	status, err := c.inside.call(r.Context(), method, path+"?wait="+answerWait, nil, &e)
	return view{to: back, outcome: newOutcome(status, e)}, err
}

// runTimer makes the run of an instant, or one that is named by now.
func (c *Console) runTimer(r *http.Request, f timerForm) (view, error) {
	at, back := whole(r, "at"), timerPath(f.Topic, f.ID)
	if !confirmed(r) {
		conf := confirmation{What: timerActions["run"], Name: f.Topic + " " + f.ID, Path: "/timer", Back: back, Detail: "It is due at once.", Fields: []field{{"do", "run"}, {"topic", f.Topic}, {"id", f.ID}}}
		if at > 0 {
			conf.Detail = "The run of " + clockIn(zoneOf(r), at) + ". " + conf.Detail
			conf.Fields = append(conf.Fields, field{"at", strconv.FormatInt(at, 10)})
		}
		return view{page: "confirm", title: conf.What, data: conf}, nil
	}
	var run api.TimerRun
	if _, err := c.inside.call(r.Context(), http.MethodPost, timerAPI(f.Topic, f.ID)+"/run", api.RunTimer{At: api.At(at)}, &run); err != nil {
		return view{}, err
	}
	out := outcome{Text: "Made " + run.ID + ": it is due now."}
	if !run.Made {
		out = outcome{Text: run.ID + " was there: nothing was made.", Bad: true}
	}
	return view{to: back, outcome: &out}, nil
}

// backfillTimer counts the missing runs of a range, and then has them made.
func (c *Console) backfillTimer(r *http.Request, f timerForm) (view, error) {
	from, err := instant(r, "from")
	if err == nil && from == (api.Instant{}) {
		err = badForm("from", "is empty: write a time, or how long ago it was, such as 72h")
	}
	to, errTo := instant(r, "to")
	if err := cmp.Or(err, errTo); err != nil {
		return view{}, err
	}
	path, back := timerAPI(f.Topic, f.ID)+"/backfill", timerPath(f.Topic, f.ID)
	until := to
	if to == (api.Instant{}) { // nobody has agreed to later runs
		until = api.At(time.Now().UnixMilli())
	}
	var done api.Backfilled
	if _, err := c.inside.call(r.Context(), http.MethodPost, path, api.Backfill{From: from, To: until, DryRun: true}, &done); err != nil {
		return view{}, err
	}
	number := toType(int64(done.Made), done.Next > 0, false)
	if confirmed(r) && (number == "" || typed(r)) {
		return c.begin(r, path, api.Backfill{From: from, To: to})
	}
	to = until
	n := func(what string, n int) string { return what + " " + digits(int64(n)) }
	text := n("Would make", done.Made) + " · " + n("were there", done.Existing) + " · " + n("still to come", done.Coming) + " · " + n("forgotten", done.Forgotten)
	if done.BeforeSet > 0 {
		text += " · " + n("from before the timer was set", done.BeforeSet)
	}
	if done.Next > 0 {
		text += ". The count ends at " + clockIn(zoneOf(r), done.Next)
	}
	return view{page: "confirm", title: timerActions["backfill"], data: confirmation{What: timerActions["backfill"], Name: f.Topic + " " + f.ID, Path: "/timer", Back: back, Detail: text + ".", Many: number, Mistyped: confirmed(r),
		Fields: []field{{"do", "backfill"}, {"topic", f.Topic}, {"id", f.ID}, {"from", written(from)}, {"to", written(to)}}}}, nil
}

func (c *Console) setTimer(r *http.Request, f timerForm) (view, error) {
	was, err := c.existing(r, f)
	if err != nil {
		return view{}, err
	}
	if was != nil && (was.Content == nil || was.Settings == nil) {
		return view{}, badForm("id", "names a timer whose content cannot be read, so it cannot stay as it is: delete it, and set it again")
	}
	filled := f.over(was)
	same := r.PostFormValue("seen") == seen(was)
	if confirmed(r) && same {
		var e api.Event
		status, err := c.inside.call(r.Context(), http.MethodPut, timerAPI(f.Topic, f.ID)+"?wait="+answerWait, filled.request(was), &e)
		return view{to: timerPath(f.Topic, f.ID), outcome: newOutcome(status, e)}, err
	}
	runs := c.runs(r, filled.definition(was))
	if runs.Wrong != "" {
		return view{}, badForm("cron or every", runs.Wrong)
	}
	conf := confirmation{What: timerActions["set"], Name: f.Topic + " " + f.ID, Path: "/timer", Back: "/timers", Detail: runs.first(), Fields: []field{
		{"do", "set"}, {"topic", f.Topic}, {"id", f.ID}, {"cron", f.Cron}, {"every", f.Every}, {"timezone", f.Timezone}, {"jitter", f.Jitter}, {"key", f.Key}, {"value", f.Value}, {"seen", seen(was)},
	}}
	if f.Set {
		conf.Fields = append(conf.Fields, field{"exists", "yes"})
	}
	if was != nil {
		conf.What, conf.Back, conf.Changes = "Change this timer", timerPath(f.Topic, f.ID), filled.replaces(was)
		conf.Detail += ". There is a timer of this name: what the form leaves empty stays, and so do its headers, its deliveries' settings, missed runs and overlap."
	}
	if confirmed(r) && !same {
		conf.Wrong = "Somebody has changed it meanwhile: look again."
	}
	return view{page: "confirm", title: conf.What, data: conf}, nil
}

func empty(_ string, v any) bool { return v == "" }

// first are the runs in a sentence.
func (d previewData) first() string {
	if len(d.Runs) == 0 {
		return "It never runs"
	}
	times := []string{}
	for _, run := range d.Runs[:min(3, len(d.Runs))] {
		times = append(times, run.Local)
	}
	return "First runs: " + strings.Join(times, ", ")
}
