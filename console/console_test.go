package console

import (
	"bytes"
	"cmp"
	"context"
	"fmt"
	"html"
	"io"
	"net/http"
	"net/http/cookiejar"
	"net/http/httptest"
	"net/url"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/zap"
	"go.uber.org/zap/zaptest/observer"
	"go.yaml.in/yaml/v3"

	"github.com/notyet/notyet/api"
	"github.com/notyet/notyet/deadletter"
	"github.com/notyet/notyet/internal/access"
	"github.com/notyet/notyet/schemas"
	"github.com/notyet/notyet/store"
	"github.com/notyet/notyet/store/admin"
	"github.com/notyet/notyet/store/intake"
	"github.com/notyet/notyet/store/look"
	"github.com/notyet/notyet/task"
)

// world is a console over an API without Kafka: its pages show, and change nothing that a scanner would have to store.
type world struct {
	t        testing.TB
	store    *store.Store
	guard    *access.Guard
	sessions *Sessions
	mux      http.Handler // behind the guard
	fleet    *api.Fleet
	front    atomic.Pointer[http.Handler]
	log      *zap.Logger
	logs     *observer.ObservedLogs
	url      string
	tokens   map[string]string // by role
	file     string
	source   intake.Source
	next     int64
}

func newWorld(t testing.TB, withTokens bool, change ...func(*access.Config)) *world {
	t.Helper()
	core, logs := observer.New(zap.InfoLevel)
	log := zap.New(core)
	st, err := store.Open(t.Context(), store.Config{DSN: "sqlite:" + t.TempDir() + "/notyet.db"}, log)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, st.Close()) })
	require.NoError(t, st.Migrate(t.Context(), 4))
	w := &world{t: t, store: st, log: log, logs: logs, tokens: map[string]string{}}
	cfg := access.Config{}
	if withTokens {
		w.file = filepath.Join(t.TempDir(), "tokens.yaml")
		w.writeTokens(access.Read, access.Operate, access.Admin)
		cfg.Tokens = w.file
	}
	server := httptest.NewServer(http.HandlerFunc(func(rw http.ResponseWriter, r *http.Request) { (*w.front.Load()).ServeHTTP(rw, r) }))
	t.Cleanup(server.Close)
	w.url = server.URL
	cfg.SignIn.PublicURL = w.url
	for _, c := range change {
		c(&cfg)
	}
	w.guard, err = access.New(cfg, log)
	require.NoError(t, err)
	mux := http.NewServeMux()
	w.fleet = api.Alone(api.NewLocal(st, deadletter.NewLocal(st, nil, "test", log)))
	api.Mount(mux, w.fleet, nil, api.Config{Version: "test", Intakes: func() []api.Intake { return []api.Intake{{Topic: "in"}} }})
	Mount(mux, "test")
	w.mux = mux
	w.restart()
	w.source, err = intake.New(st).Source(t.Context(), "in", [16]byte{1}, 0, 0)
	require.NoError(t, err)
	return w
}

// restart has another process of the installation serve.
func (w *world) restart() {
	w.sessions = NewSessions(Config{Guard: w.guard, Common: func() Common { return admin.New(w.store) }, PublicURL: w.url, Version: "test", Log: w.log})
	front := access.CrossOrigin(w.sessions.Front(w.guard.Handler(w.mux)))
	w.front.Store(&front)
}

// operate has a service make the steps of operations, until it is stopped.
func (w *world) operate() (stop func()) {
	ctx, cancel := context.WithCancel(w.t.Context())
	var running sync.WaitGroup
	running.Go(func() { _ = api.NewOperator(w.fleet, w.log).Run(ctx) })
	stop = func() { cancel(); running.Wait() }
	w.t.Cleanup(stop)
	return stop
}

func (w *world) writeTokens(roles ...access.Role) {
	w.t.Helper()
	var entries []access.Entry
	for _, role := range roles {
		token, entry := access.NewToken(role.String(), role, access.Everything)
		w.tokens[role.String()], entries = token, append(entries, entry)
	}
	text, err := yaml.Marshal(entries)
	require.NoError(w.t, err)
	require.NoError(w.t, os.WriteFile(w.file, text, 0o600))
}

func (w *world) schedule(topic, id string, value []byte) {
	w.t.Helper()
	w.apply(w.request(topic, id, value))
}

// die writes a dead letter, of a new task where its Seq is 0.
func (w *world) die(l task.DeadLetter) task.DeadLetter {
	w.t.Helper()
	seq := task.Seq(w.source.ID, w.next)
	w.next++
	l.Seq = cmp.Or(l.Seq, seq)
	w.apply(task.Change{Seq: seq, Rejected: &l})
	return l
}

// end cancels a task.
func (w *world) end(topic, id string) {
	w.t.Helper()
	c := w.request(topic, id, nil)
	c.Request.Op = schemas.OpCancel
	w.apply(c)
}

func (w *world) request(topic, id string, value []byte) task.Change {
	c := task.Change{Seq: task.Seq(w.source.ID, w.next), Request: &schemas.Request{
		Topic: topic, ID: id, GivenID: true, Due: time.Now().Add(time.Hour).UnixMilli(), Accepted: time.Now().UnixMilli(), Version: -1, Value: value, Settings: schemas.DefaultSettings(),
	}}
	w.next++
	return c
}

func (w *world) apply(changes ...task.Change) {
	w.t.Helper()
	_, err := intake.New(w.store).Apply(w.t.Context(), intake.Batch{Advance: []intake.Advance{{Source: w.source.ID, From: w.next - int64(len(changes)), To: w.next}}, Changes: changes}, store.At(time.Now().UnixMilli()))
	require.NoError(w.t, err)
}

// browser keeps cookies and does not follow redirects.
type browser struct {
	w *world
	c *http.Client
}

func (w *world) browser() *browser {
	jar, err := cookiejar.New(nil)
	require.NoError(w.t, err)
	return &browser{w, &http.Client{Jar: jar, CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }}}
}

// as is a browser that has signed in.
func (w *world) as(role string) *browser {
	b := w.browser()
	resp, _ := b.post("/sign-in", url.Values{"token": {w.tokens[role]}, "next": {"/find"}})
	require.Equal(w.t, http.StatusSeeOther, resp.StatusCode)
	require.Equal(w.t, "/find", resp.Header.Get("Location"))
	return b
}

// cardLabels name the cells of a table whose rows are cards.
var cardLabels = regexp.MustCompile(` data-th="[^"]*"`)

// do returns the page without them.
func (b *browser) do(req *http.Request) (*http.Response, string) {
	b.w.t.Helper()
	resp, err := b.c.Do(req)
	require.NoError(b.w.t, err)
	defer resp.Body.Close()
	text, err := io.ReadAll(resp.Body)
	require.NoError(b.w.t, err)
	return resp, cardLabels.ReplaceAllString(string(text), "")
}

func (b *browser) get(path string) (*http.Response, string) {
	b.w.t.Helper()
	req, err := http.NewRequestWithContext(b.w.t.Context(), http.MethodGet, b.w.url+path, nil)
	require.NoError(b.w.t, err)
	return b.do(req)
}

func (b *browser) post(path string, form url.Values) (*http.Response, string) {
	b.w.t.Helper()
	req, err := http.NewRequestWithContext(b.w.t.Context(), http.MethodPost, b.w.url+path, strings.NewReader(form.Encode()))
	require.NoError(b.w.t, err)
	req.Header.Set("Content-Type", "application/x-www-form-urlencoded")
	return b.do(req)
}

var everyPage = []string{"/", "/find", "/find?q=a", "/targets", "/timers", "/deadletters", "/operations", "/cluster", "/audit"}

func TestEveryPageForEveryRole(t *testing.T) {
	w := newWorld(t, true)
	w.schedule("orders", "a1", []byte(`{"amount":42}`))
	for _, role := range []string{"read", "operate", "admin"} {
		b := w.as(role)
		for _, path := range append(everyPage, taskPath("orders", "a1")) {
			resp, text := b.get(path)
			require.Equal(t, http.StatusOK, resp.StatusCode, "%s %s: %s", role, path, text)
			requireWhole(t, resp, text)
			require.Contains(t, text, "("+role+")")
		}
	}
}

// requireWhole checks what holds for every page: its policy, no script or style of its own, nothing from elsewhere.
func requireWhole(t *testing.T, resp *http.Response, text string) {
	t.Helper()
	require.Contains(t, resp.Header.Get("Content-Security-Policy"), "default-src 'none'")
	require.Equal(t, "nosniff", resp.Header.Get("X-Content-Type-Options"))
	require.Equal(t, "no-store", resp.Header.Get("Cache-Control"))
	require.NotContains(t, text, "ZgotmplZ")
	text = strings.ReplaceAll(text, `<a href="`+published, "") // a link loads nothing
	require.NotRegexp(t, regexp.MustCompile(`(?i)<script[^>]*>[^<]|\sstyle="|<style|\son[a-z]+="|(src|href)="(https?:)?//`), text)
}

func TestReadersSeeNoContentAndNoButtons(t *testing.T) {
	w := newWorld(t, true)
	w.schedule("orders", "a1", []byte("secret-value"))
	_, text := w.as("read").get(taskPath("orders", "a1"))
	require.NotContains(t, text, "secret-value")
	require.NotContains(t, text, `id="cancel"`)
	require.Contains(t, text, `id="withheld"`)
	_, text = w.as("operate").get(taskPath("orders", "a1"))
	require.Contains(t, text, "secret-value")
	require.Contains(t, text, `id="cancel"`)

	confirmed := url.Values{"do": {"cancel"}, "topic": {"orders"}, "id": {"a1"}, "confirmed": {"yes"}}
	resp, text := w.as("read").post("/task", confirmed)
	require.Equal(t, http.StatusForbidden, resp.StatusCode, text)
	for do, role := range map[string]string{"replay": "read", "purge": "operate"} {
		resp, text := w.as(role).post("/deadletters", url.Values{"do": {do}})
		require.Equal(t, http.StatusForbidden, resp.StatusCode, text)
	}
	resp, _ = w.as("read").post("/targets", url.Values{"do": {"pause"}, "topic": {"orders"}, "confirmed": {"yes"}})
	require.Equal(t, http.StatusForbidden, resp.StatusCode)
}

func TestHostileTextIsShownAndDoesNothing(t *testing.T) {
	w := newWorld(t, true)
	b := w.as("operate")
	for i, id := range []string{"<script>alert(1)</script>", `"><img src=x onerror=alert(1)>`, "javascript:alert(1)", "a\u202egpj.exe", "100%/?&#=", "x\x00y", strings.Repeat("w", 255)} {
		topic := fmt.Sprintf("t%d", i)
		w.schedule(topic, id, []byte(id+"</pre><script>x</script>"))
		for _, path := range []string{taskPath(topic, id), "/find?" + url.Values{"topic": {topic}}.Encode(), "/find?" + url.Values{"q": {id}}.Encode()} {
			resp, text := b.get(path)
			if resp.StatusCode == http.StatusSeeOther {
				continue // found by topic and id
			}
			requireWhole(t, resp, text)
			require.NotContains(t, text, "<script>alert")
			require.NotContains(t, text, "<script>x")
			require.NotContains(t, text, "<img")
			shown := regexp.MustCompile(`(value|href)="[^"]*"`).ReplaceAllString(text, "")
			require.NotContains(t, shown, "\u202e")
		}
	}
}

func TestFindGoesToTheTask(t *testing.T) {
	w := newWorld(t, true)
	b := w.as("read")
	w.schedule("orders", "o-17", nil)
	w.schedule("https://shop.example", "o-18", nil)
	for q, to := range map[string]string{"orders o-17": taskPath("orders", "o-17"), "orders/o-17": taskPath("orders", "o-17"), "https://shop.example/o-18": taskPath("https://shop.example", "o-18")} {
		resp, text := b.get("/find?" + url.Values{"q": {q}}.Encode())
		require.Equal(t, http.StatusSeeOther, resp.StatusCode, text)
		require.Equal(t, to, resp.Header.Get("Location"))
	}
	_, text := b.get("/find?q=o-1")
	require.Contains(t, text, "o-17")
	require.Contains(t, text, "o-18")
	_, text = b.get("/find?tag=vip")
	require.Contains(t, text, `name="tag" value="vip"`)
	require.Contains(t, text, "No task is like that")
	_, text = b.get("/find?q=nothing")
	require.Contains(t, text, "No task is like that")
}

// "None" is said of what was looked through: ended tasks too, and each meaning of the text.
func TestFindLooksThroughEverything(t *testing.T) {
	w := newWorld(t, true)
	b := w.as("read")
	for _, id := range []string{"o-17", "notyet.intake/3/762", "sent"} {
		w.schedule("orders", id, nil)
	}
	for n := range 8 {
		w.schedule("reports", fmt.Sprintf("daily@%d", n), nil)
	}
	w.schedule("reports", "daily@to-come", nil)
	w.schedule("reports", "sent", nil)
	w.schedule("notyet.intake", "3/9", nil)
	w.end("orders", "o-17")
	w.end("orders", "sent")
	for n := range 8 {
		w.end("reports", fmt.Sprintf("daily@%d", n))
	}

	for q, to := range map[string]string{
		"o-17":                taskPath("orders", "o-17"), // it has ended, and no topic was typed
		"notyet.intake/3/762": taskPath("orders", "notyet.intake/3/762"),
		"notyet.intake/3/9":   taskPath("notyet.intake", "3/9"),
		"orders o-17":         taskPath("orders", "o-17"),
	} {
		resp, text := b.get("/find?" + url.Values{"q": {q}}.Encode())
		require.Equal(t, http.StatusSeeOther, resp.StatusCode, "%s: %s", q, text)
		require.Equal(t, to, resp.Header.Get("Location"), q)
	}
	_, text := b.get("/find?q=sent")
	require.Contains(t, text, "With this id")
	require.Equal(t, 2, strings.Count(text, ">sent</a>"), "of both targets")
	_, text = b.get("/find?q=notyet.intake/3")
	require.Contains(t, text, ">notyet.intake/3/762</a>")
	require.Contains(t, text, ">3/9</a>")
	_, text = b.get("/find?" + url.Values{"topic": {"reports"}, "q": {"daily@"}}.Encode())
	require.Equal(t, 9, strings.Count(text, ">daily@"), "those of its runs that have ended, and those to come")
	_, text = b.get("/find?" + url.Values{"topic": {"reports"}, "q": {"daily@"}, "state": {"pending"}}.Encode())
	require.Equal(t, 1, strings.Count(text, ">daily@"))
}

// A page that has not looked through everything does not say "none", and goes on where it ended.
func TestFindGoesOnToTheEnd(t *testing.T) {
	w := newWorld(t, true)
	for range 11 {
		var many []task.Change
		for range look.ListExamined / 5 {
			many = append(many, w.request("orders", fmt.Sprintf("o-%05d", w.next), nil))
		}
		w.apply(many...)
	}
	w.schedule("orders", "the-last", nil)
	b := w.as("read")
	resp, _ := b.get("/find?q=the-last")
	require.Equal(t, taskPath("orders", "the-last"), resp.Header.Get("Location"), "an id is found at once, however many tasks there are")
	for q, found := range map[string]bool{"the-la": true, "nowhere": false} {
		for path, pages := "/find?q="+q, 0; path != ""; pages++ {
			require.Less(t, pages, 10)
			_, text := b.get(path)
			m := regexp.MustCompile(`class="button" href="(/find[^"]+)"`).FindStringSubmatch(text)
			if path = ""; m != nil {
				path = strings.ReplaceAll(m[1], "&amp;", "&")
				require.NotContains(t, text, `id="none"`)
				continue
			}
			require.Equal(t, found, strings.Contains(text, ">the-last</a>"))
			require.Equal(t, !found, strings.Contains(text, `id="none"`))
		}
	}
}

// Tonight's dead letters are on the first page, and the next page begins where it ended although
// others die meanwhile.
func TestDeadLettersOfTonightComeFirst(t *testing.T) {
	w := newWorld(t, true)
	die := func(from, to int) {
		for i := from; i < to; i++ {
			w.die(task.DeadLetter{Kind: schemas.KindRejected, Topic: "orders", TaskID: fmt.Sprintf("o-%03d", i), Reason: "bad"})
		}
	}
	die(0, 120)
	b, path := w.as("read"), "/deadletters"
	var seen []string
	for path != "" {
		_, text := b.get(path)
		for _, m := range regexp.MustCompile(`<td>(o-\d+)</td>`).FindAllStringSubmatch(text, -1) {
			seen = append(seen, m[1])
		}
		die(200+len(seen), 203+len(seen))
		m := regexp.MustCompile(`id="next" class="button" href="([^"]+)"`).FindStringSubmatch(text)
		if path = ""; m != nil {
			path = strings.ReplaceAll(m[1], "&amp;", "&")
		}
	}
	require.Len(t, seen, 120)
	for i, id := range seen {
		require.Equal(t, fmt.Sprintf("o-%03d", 119-i), id)
	}
}

// A replay ends with what was replayed, what was not and why, and what died again.
func TestReplaySaysWhatBecameOfIt(t *testing.T) {
	w := newWorld(t, true)
	w.operate()
	var dead []task.DeadLetter
	body := schemas.EncodeBody(nil, []byte("v"), nil, nil, schemas.DefaultSettings())
	for i := range 3 {
		w.die(task.DeadLetter{Kind: schemas.KindRejected, Topic: "orders", TaskID: fmt.Sprint("rejected", i), Reason: "bad"})
		dead = append(dead, w.die(task.DeadLetter{Kind: schemas.KindDead, Topic: "orders", TaskID: fmt.Sprint("dead", i), Reason: "bad", Body: body}))
	}
	w.die(task.DeadLetter{Kind: schemas.KindExpired, Topic: "orders", TaskID: "ten-times", Replay: task.MaxReplays, Body: body})
	b := w.as("operate")
	replay := func(fields ...string) string {
		form := url.Values{"do": {"replay"}, "confirmed": {"yes"}}
		for i := 0; i < len(fields); i += 2 {
			form.Set(fields[i], fields[i+1])
		}
		resp, text := b.post("/deadletters", form)
		require.Equal(t, http.StatusSeeOther, resp.StatusCode, text)
		return resp.Header.Get("Location")
	}
	text := b.ended(replay("kind", "rejected"))
	require.Contains(t, text, `class="bad">Replayed 0 · skipped 3 · died again 0`)
	require.Contains(t, text, "skipped 3: it is a rejected request")
	require.Contains(t, text, "kind rejected</strong>")

	outcome := replay("topic", "orders")
	text = b.ended(outcome)
	require.Contains(t, text, "Replayed 3 · skipped 4 · died again 0")
	require.Contains(t, text, "skipped 1: it has been replayed 10 times")
	require.Contains(t, text, `href="/deadletters?topic=orders"`)
	for _, l := range dead[:2] {
		l.Replay, l.ID = 1, 0
		w.die(l)
	}
	w.die(task.DeadLetter{Kind: schemas.KindDead, Topic: "orders", TaskID: "another", Reason: "bad", Body: body})
	_, text = b.get(outcome)
	require.Contains(t, text, "Replayed 3 · skipped 4 · died again 2 so far")
}

// A token for some topics sees its figures, and no zero where it is told nothing.
func TestOverviewOfSomeTopicsHasNoFalseZeros(t *testing.T) {
	w := newWorld(t, true)
	token, entry := access.NewToken("some", access.Read, []string{"orders*"})
	text, err := yaml.Marshal([]access.Entry{entry})
	require.NoError(t, err)
	old, err := os.ReadFile(w.file)
	require.NoError(t, err)
	require.NoError(t, os.WriteFile(w.file, append(old, text...), 0o600))
	w.tokens["some"] = token
	for i := range 5 {
		w.schedule("orders.eu", fmt.Sprint(i), nil)
		w.schedule("bills", fmt.Sprint(i), nil)
		w.die(task.DeadLetter{Kind: schemas.KindDead, Topic: "orders.eu", TaskID: fmt.Sprint(i), Reason: "bad"})
		w.die(task.DeadLetter{Kind: schemas.KindDead, Topic: "bills", TaskID: fmt.Sprint(i), Reason: "bad"})
	}
	var b *browser
	require.Eventually(t, func() bool {
		b = w.browser()
		resp, _ := b.post("/sign-in", url.Values{"token": {token}, "next": {"/find"}})
		return resp.StatusCode == http.StatusSeeOther
	}, time.Minute, 50*time.Millisecond)
	_, page := b.get("/")
	require.Contains(t, page, `id="own"`)
	require.Contains(t, page, "<p>5 tasks fall due. Deliveries are not shown: they are counted of all targets together.</p>")
	require.Contains(t, page, "<td>not known</td><td>5</td>")
	_, found := b.get(html.UnescapeString(regexp.MustCompile(`<g class="comes"><a href="([^"]+)"`).FindStringSubmatch(page)[1]))
	require.Contains(t, found, "orders.eu")
	require.NotContains(t, found, "bills")
	require.Contains(t, page, `<a href="/deadletters?kind=dead">dead</a> 5<`)
	require.NotContains(t, page, "name one with topic")
	require.NotContains(t, page, "/s</p>", "rates are of the whole installation")
	require.NotContains(t, page, `id="lateness"`)
	require.NotContains(t, page, "would raise an alert")
	_, page = w.as("read").get("/")
	require.Contains(t, page, "<p>10 tasks fall due.</p>")
	require.Contains(t, page, "<td>0</td><td>10</td>")
	require.Contains(t, page, "dead</a> 10<")
	require.Contains(t, page, "0/s</p>")
}

// What could not be read is not told as zero, none, or well.
func TestOverviewThatCannotBeRead(t *testing.T) {
	w := newWorld(t, true)
	b := w.as("read")
	_, page := b.get("/")
	require.Contains(t, page, "<li>none</li>", "there are no dead letters")
	d := &overviewData{AllErr: "the database is away", ClusterErr: "the database is away", RiverErr: "the database is away"}
	var out bytes.Buffer
	require.NoError(t, pages["overview"].ExecuteTemplate(&out, "content", shown{Data: d}))
	for _, untrue := range []string{"none", ">0<", "0/s", "would raise", "<td>0</td>"} {
		require.NotContains(t, out.String(), untrue)
	}
	d = &overviewData{All: api.Overview{Now: &api.Work{}, Missing: []api.Missing{{What: "dead_letters", Why: "w"}, {What: "targets", Why: "w"}, {What: "overdue", Why: "w"}, {What: "alerts", Why: "w"}}}}
	out.Reset()
	require.NoError(t, pages["overview"].ExecuteTemplate(&out, "content", shown{Data: d}))
	require.NotContains(t, out.String(), "<li>none</li>")
	require.NotContains(t, out.String(), "would raise")
	require.Equal(t, 3, strings.Count(out.String(), "not known"))
}

// An alert on the overview leads to the page that its rule names.
func TestAlertsLeadToTheirRunbooks(t *testing.T) {
	var out bytes.Buffer
	late := 49_970.0
	d := &overviewData{All: api.Overview{Alerts: []api.Alert{{Name: "NotyetLate", Why: "w"}}, Now: &api.Work{LatenessP99: &late}}}
	require.NoError(t, pages["overview"].ExecuteTemplate(&out, "content", shown{Data: d}))
	require.Contains(t, out.String(), `href="/runbooks/NotyetLate"`)
	require.Contains(t, out.String(), `id="lateness">50 s<`)
}

// Each alert has a page here, whose links lead to pages that exist.
func TestRunbooksAreServed(t *testing.T) {
	b := newWorld(t, true).as("read")
	rules, err := os.ReadFile("../docs/alerts.yml")
	require.NoError(t, err)
	alerts := regexp.MustCompile(`alert: (\w+)\n`).FindAllSubmatch(rules, -1)
	require.Greater(t, len(alerts), 20)
	for _, alert := range alerts {
		path := "/runbooks/" + string(alert[1])
		resp, text := b.get(path)
		require.Equal(t, http.StatusOK, resp.StatusCode, path)
		requireWhole(t, resp, text)
		require.Contains(t, text, "<h1>"+string(alert[1])+"</h1>")
		require.Contains(t, text, "<h2>Do</h2>", path)
		for _, link := range regexp.MustCompile(`id="runbook">[\s\S]*</main>`).FindAllString(text, -1) {
			for _, to := range regexp.MustCompile(`href="([^"#]*)`).FindAllStringSubmatch(link, -1) {
				if page, elsewhere := strings.CutPrefix(to[1], published); elsewhere {
					require.FileExists(t, "../"+page)
					continue
				}
				resp, _ := b.get("/runbooks/" + to[1])
				require.Equal(t, http.StatusOK, resp.StatusCode, to[1])
			}
		}
	}
	for _, name := range []string{"Unknown", "..%2Falerts", "%2e%2e%2falerts.yml", "NotyetLate.md.md"} {
		resp, _ := b.get("/runbooks/" + name)
		require.Equal(t, http.StatusNotFound, resp.StatusCode, name)
	}
}

// A timer has a name space of its own: its changes are none of the task with the same name.
func TestHistoryOfATaskHasNoChangesOfATimer(t *testing.T) {
	w := newWorld(t, true)
	w.schedule("orders", "daily", nil)
	for _, what := range []string{"timer", "timer-disable", "timer-run", "fire"} {
		require.NoError(t, admin.New(w.store).Audit(t.Context(), []admin.AuditEntry{{Actor: admin.Actor{Who: "ann", Via: admin.ViaAPI}, What: what, Topic: "orders", TaskID: "daily", Detail: "{}"}}))
	}
	_, text := w.as("read").get(taskPath("orders", "daily"))
	require.Contains(t, text, "<strong>fire</strong>")
	require.NotContains(t, text, "<strong>timer")
}

func TestListsPage(t *testing.T) {
	w := newWorld(t, true)
	for i := range 120 {
		w.schedule("orders", fmt.Sprintf("o-%03d", i), nil)
	}
	b, path, seen := w.as("read"), "/find?topic=orders", 0
	for page := 0; path != ""; page++ {
		require.Less(t, page, 10)
		_, text := b.get(path)
		seen += strings.Count(text, "/task?")
		path = ""
		if m := regexp.MustCompile(`id="next" class="button" href="([^"]+)"`).FindStringSubmatch(text); m != nil {
			path = strings.ReplaceAll(m[1], "&amp;", "&")
		}
	}
	require.Equal(t, 120, seen)
}

func TestPauseAndResume(t *testing.T) {
	w := newWorld(t, true)
	b := w.as("operate")
	form := url.Values{"do": {"pause"}, "topic": {"orders"}}
	resp, text := b.get("/targets?do=pause&topic=orders&confirmed=yes")
	require.Equal(t, http.StatusOK, resp.StatusCode)
	require.Contains(t, text, `<strong id="named">orders</strong>`, "an address alone confirms nothing")
	_, text = b.get("/targets")
	require.NotContains(t, text, "paused</span>", "nothing without a confirmation")
	form.Set("confirmed", "yes")
	resp, text = b.post("/targets", form)
	require.Equal(t, http.StatusSeeOther, resp.StatusCode, text)
	_, text = b.get("/targets")
	require.Contains(t, text, "paused</span>")
	limited := func(rate, inFlight string) (*http.Response, string) {
		return b.post("/targets", url.Values{"do": {"limit"}, "topic": {"orders"}, "rate": {rate}, "max_in_flight": {inFlight}, "confirmed": {"yes"}})
	}
	resp, text = limited("2.5", "7")
	require.Equal(t, http.StatusSeeOther, resp.StatusCode, text)
	_, text = b.get(resp.Header.Get("Location"))
	require.Contains(t, text, "2.5 a second")
	require.Contains(t, text, "paused</span>", "a limit says nothing about a pause")
	require.Contains(t, text, "orders: limited. In force: paused, tasks a second: 2.5, records in flight: 7")
	_, text = b.get("/targets?do=limit&topic=orders&rate=10")
	require.Contains(t, text, `<td>2.5</td><td><strong>10</strong>`, "what it replaces")
	require.Contains(t, text, `<td>7</td><td><span class="dim">stays</span>`)
	limited("10", "")
	_, text = b.get("/targets")
	require.Contains(t, text, "<td>10 a second</td><td>7</td>", "the other limit stays")
	limited("", "0")
	_, text = b.get("/targets")
	require.Contains(t, text, "<td>10 a second</td><td>no limit</td>")
	resp, text = limited("", "")
	require.Equal(t, http.StatusUnprocessableEntity, resp.StatusCode)
	require.Contains(t, text, "0 takes it away")
	for _, x := range [][2]string{{"rate", "fast"}, {"max_in_flight", "1.5"}, {"rate", "inf"}, {"rate", "nan"}, {"max_in_flight", "inf"}} {
		field := x[0]
		resp, text := b.post("/targets", url.Values{"do": {"limit"}, "topic": {"orders"}, field: {x[1]}})
		require.Equal(t, http.StatusUnprocessableEntity, resp.StatusCode, x)
		require.Contains(t, text, field)
	}
	_, text = b.get("/audit")
	require.Contains(t, text, "orders")

	resp, text = b.get("/targets?do=pause&topic=orders&until=2h") // and not +2h
	require.Equal(t, http.StatusUnprocessableEntity, resp.StatusCode)
	require.Contains(t, text, `data-field="until">until has passed (`)
	form.Set("until", "2999-12-24T09:00")
	_, text = b.get("/targets?" + url.Values{"do": {"pause"}, "topic": {"orders"}, "until": form["until"]}.Encode())
	require.Contains(t, text, `<td>paused</td><td><strong>paused until 2999-12-24 09:00:00.000 UTC</strong>`)
	require.Contains(t, text, `name="until" value="2999-12-24T09:00:00Z"`)
	resp, text = b.post("/targets", form)
	require.Equal(t, http.StatusSeeOther, resp.StatusCode, text)
	_, text = b.get("/targets")
	require.Contains(t, text, `paused</span> until <time datetime="2999-12-24T09:00:00Z"`)
	for _, wrong := range []string{"soon", "2020-12-24T09:00"} {
		form.Set("until", wrong)
		resp, text = b.post("/targets", form)
		require.Equal(t, http.StatusUnprocessableEntity, resp.StatusCode)
		require.Contains(t, text, "until")
	}
}

// A slip in a name is seen before the change: the names that were perhaps meant are a click away.
func TestANameThatNobodyKnowsIsAskedAbout(t *testing.T) {
	w := newWorld(t, true)
	b := w.as("operate")
	w.schedule("newsletter", "a", nil)
	_, text := b.get("/targets?do=pause&topic=newslettr")
	require.Contains(t, text, "No task has this target")
	require.Contains(t, text, `href="/targets?do=pause&amp;max_in_flight=&amp;rate=&amp;topic=newsletter&amp;until=">newsletter</a>`)
	require.Contains(t, text, "Pause this target all the same")
	_, text = b.get("/targets?do=pause&topic=newsletter")
	require.NotContains(t, text, `id="unknown"`)
	require.NotContains(t, text, "all the same")
	_, text = b.get("/targets?do=resume&topic=payments")
	require.Contains(t, text, "No task has this target")
	require.NotContains(t, text, "Did you mean")

	req := httptest.NewRequest(http.MethodGet, "/targets?do=pause&topic=newsletter", http.NoBody)
	rec := httptest.NewRecorder()
	w.mux.ServeHTTP(rec, req.WithContext(access.With(req.Context(), access.Caller{Name: "ann", Role: access.Operate, Topics: []string{"orders"}})))
	require.Equal(t, http.StatusForbidden, rec.Code, "refused before the question")
	require.NotContains(t, rec.Body.String(), "No task has this target")
}

// However much there is, a page stays small, and its tables have more pages.
func TestPagesAreBounded(t *testing.T) {
	w := newWorld(t, true)
	for i := range admin.MaxPolicies {
		_, err := admin.New(w.store).SetPolicy(t.Context(), fmt.Sprintf("a-target-with-a-longer-name-%04d", i), 1, func(admin.Policy) admin.Policy { return admin.Policy{Paused: i%2 == 0, Rate: 1} })
		require.NoError(t, err)
	}
	b := w.as("operate")
	path, seen, fastest := "/targets", 0, time.Hour
	for pages := 0; path != ""; pages++ {
		require.Less(t, pages, 25)
		begin := time.Now()
		_, text := b.get(path)
		fastest = min(fastest, time.Since(begin)) // the machine may stand still meanwhile
		require.Less(t, len(text), 60<<10)
		seen += strings.Count(text, "<tr data-key=")
		path = ""
		if m := regexp.MustCompile(`id="next" class="button" href="([^"]+)"`).FindStringSubmatch(text); m != nil {
			path = strings.ReplaceAll(m[1], "&amp;", "&")
		}
	}
	require.Equal(t, admin.MaxPolicies, seen)
	require.Less(t, fastest, time.Second)
	_, text := b.get("/")
	require.Less(t, len(text), 60<<10)
	require.Equal(t, 10, strings.Count(text, `data-key="paused `))
	require.Contains(t, text, ">and 490 more</a>")
}

func TestTablesHaveParts(t *testing.T) {
	all := make([]int, 150)
	for i := range all {
		all[i] = i
	}
	seen, path := []int{}, "/cluster"
	for path != "" {
		path, _, _ = strings.Cut(path, "#") // no browser sends it
		rows, next := part(httptest.NewRequest(http.MethodGet, path, nil), "slots", all)
		require.LessOrEqual(t, len(rows), partRows)
		require.NotEqual(t, path, next)
		seen, path = append(seen, rows...), next
		require.LessOrEqual(t, len(seen), len(all))
	}
	require.Equal(t, all, seen)
	for _, from := range []string{"-1", "x", "1000"} {
		rows, _ := part(httptest.NewRequest(http.MethodGet, "/cluster?slots="+from, nil), "slots", all)
		require.LessOrEqual(t, len(rows), partRows)
	}
}

func TestPreviewShowsRunsAndMistakes(t *testing.T) {
	w := newWorld(t, true)
	b := w.as("read")
	resp, text := b.post("/preview", url.Values{"cron": {"30 2 * * *"}, "timezone": {"Europe/Berlin"}})
	require.Equal(t, http.StatusOK, resp.StatusCode)
	require.Equal(t, 10, strings.Count(text, "<tr><td>"))
	require.NotContains(t, text, "<html")
	_, text = b.post("/preview", url.Values{"cron": {"30 2 * *"}})
	require.Contains(t, text, "cron")
	require.Contains(t, text, `class="bad"`)
}

func TestUnknownPagesAndThings(t *testing.T) {
	w := newWorld(t, true)
	b := w.as("admin")
	for path, status := range map[string]int{"/nowhere": 404, taskPath("orders", "none"): 404, timerPath("orders", "none"): 404, "/deadletter?id=x": 422, "/deadletter?id=7": 404} {
		resp, text := b.get(path)
		require.Equal(t, status, resp.StatusCode, "%s: %s", path, text)
	}
	resp, _ := b.post("/task", url.Values{"do": {"explode"}})
	require.Equal(t, http.StatusUnprocessableEntity, resp.StatusCode)
	resp, text := b.post("/timer", url.Values{"do": {"set"}, "topic": {"orders"}, "id": {"a"}, "every": {"1h"}, "value": {"caf\xe9"}, "confirmed": {"yes"}})
	require.Equal(t, http.StatusUnprocessableEntity, resp.StatusCode)
	require.Contains(t, text, "value is not UTF-8", "a browser sends UTF-8; what does not is not changed")
	resp, _ = b.post("/task", url.Values{"x": {strings.Repeat("x", maxForm)}})
	require.Equal(t, http.StatusBadRequest, resp.StatusCode)
}

func TestTheTasksPageSaysWhatItWaitsFor(t *testing.T) {
	w := newWorld(t, true)
	w.schedule("orders", "o-1", nil)
	b := w.as("operate")
	_, text := b.get(taskPath("orders", "o-1"))
	require.Contains(t, text, `id="why">The task is not due yet.<`)
	resp, _ := b.post("/targets", url.Values{"do": {"pause"}, "topic": {"orders"}, "confirmed": {"yes"}})
	require.Equal(t, http.StatusSeeOther, resp.StatusCode)
	for _, role := range []string{"read", "operate"} {
		_, text = w.as(role).get(taskPath("orders", "o-1"))
		require.Contains(t, text, "Its target is paused", role)
	}
}

// A page that can become old has an age, and its lists have keys, so that the script refreshes it in
// place. A form has none: the script leaves it as it was typed.
func TestPagesSayHowOldTheyAre(t *testing.T) {
	w := newWorld(t, true)
	w.schedule("orders", "a1", nil)
	b := w.as("admin")
	for path, age := range map[string]string{"/": "live", "/targets": "live", "/cluster": "live", taskPath("orders", "a1"): "live", "/find": "still", "/deadletters": "still", "/timers": "still", "/audit": "still"} {
		_, text := b.get(path)
		require.Contains(t, text, `<main id="main" data-age="`+age+`">`, path)
		require.Contains(t, text, `<time id="shown"`, path)
		require.Equal(t, 1, strings.Count(text, `id="shown"`), path)
	}
	_, text := b.get(taskPath("orders", "none"))
	require.Contains(t, text, `<main id="main">`)
	_, text = b.post("/task", url.Values{"do": {"cancel"}, "topic": {"orders"}, "id": {"a1"}})
	require.Contains(t, text, `<main id="main">`)
}

// A session that has ended leads back to the page, also from a form, and says that nothing changed.
func TestSignInLeadsBack(t *testing.T) {
	w := newWorld(t, true)
	w.schedule("orders", "a1", nil)
	b := w.browser()
	resp, _ := b.get("/targets?x=1")
	require.Equal(t, "/sign-in?next=%2Ftargets%3Fx%3D1", resp.Header.Get("Location"))
	for referer, next := range map[string]string{w.url + taskPath("orders", "a1"): taskPath("orders", "a1"), "": "/", "https://elsewhere.example//evil.example/": "/"} {
		req, err := http.NewRequestWithContext(t.Context(), http.MethodPost, w.url+"/task", strings.NewReader("do=cancel&topic=orders&id=a1&confirmed=yes"))
		require.NoError(t, err)
		req.Header.Set("Content-Type", "application/x-www-form-urlencoded")
		req.Header.Set("Referer", referer)
		resp, _ = b.do(req)
		require.Equal(t, http.StatusSeeOther, resp.StatusCode)
		to, err := url.Parse(resp.Header.Get("Location"))
		require.NoError(t, err)
		require.Equal(t, "/sign-in", to.Path)
		require.Equal(t, next, to.Query().Get("next"))
		_, text := b.get(to.String())
		require.Contains(t, text, "nothing was changed")
	}
}

// Tasks are found, and cancelled, by the time at which they are due.
func TestFindByTime(t *testing.T) {
	w := newWorld(t, true)
	at := time.Now().Add(3 * time.Hour).Truncate(time.Minute)
	for i := range 3 {
		c := w.request("orders", fmt.Sprint("a", i), nil)
		c.Request.Due = at.Add(time.Duration(i) * time.Minute).UnixMilli()
		w.apply(c)
	}
	b := w.as("operate")
	q := url.Values{"from": {at.Add(time.Minute).UTC().Format(time.RFC3339)}, "to": {at.Add(2 * time.Minute).UTC().Format(time.RFC3339)}}
	_, text := b.get("/find?" + q.Encode())
	require.Contains(t, text, ">a1<")
	require.NotContains(t, text, ">a0<")
	require.NotContains(t, text, ">a2<")
	q.Set("do", "cancel")
	_, text = b.get("/find?" + q.Encode())
	require.Contains(t, text, `id="confirm"`)
	require.Contains(t, text, "1 tasks now")
	resp, text := b.get("/find?from=tomorrow")
	require.Equal(t, http.StatusUnprocessableEntity, resp.StatusCode)
	require.Contains(t, text, "from ")
}
