package main

import (
	"context"
	"crypto/rand"
	"encoding/base64"
	"encoding/json"
	"flag"
	"fmt"
	"io"
	mathrand "math/rand/v2"
	"net/http"
	"net/http/cookiejar"
	"net/url"
	"os"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kadm"
	"go.yaml.in/yaml/v3"

	"github.com/notyet/notyet/internal/access"
	"github.com/notyet/notyet/internal/command"
	"github.com/notyet/notyet/test/mysqltest"
	"github.com/notyet/notyet/test/oidctest"
	"github.com/notyet/notyet/test/program"
)

var combinations = flag.Int("combinations", 2000, "how many random requests TestAccess sends, and that it also asks a service on real servers")

// Each of a tenant's topics has tasks, a timer, a dead letter and entries of the audit log. Who may change those of a
// vault leaves them alone here, so that the others' tries would show at the end.
var accessTopics = []string{"shop.vault", "shop.open", "https://shop.test", "bank.vault", "bank.open", "https://bank.test", "shopx.open"}

// Whoever asks for whatever about whosever tasks gets what the contract says, sees no name or content of topics that are
// another's, and changes nothing there.
func TestAccess(t *testing.T) {
	t.Run("dev", func(t *testing.T) {
		testAccess(t, func(t *testing.T, settings ...string) string { return startDev(t, settings...).http })
	})
	t.Run("servers", func(t *testing.T) {
		asked := false
		flag.Visit(func(f *flag.Flag) { asked = asked || f.Name == "combinations" })
		if !asked {
			t.Skip("-combinations is not set")
		}
		testAccess(t, startOnServers)
	})
}

// startOnServers runs a service on the Kafka and the database that the environment names, with names of its own.
func startOnServers(t *testing.T, settings ...string) string {
	t.Helper()
	brokers := os.Getenv("NOTYET_KAFKA_BROKERS")
	if brokers == "" {
		t.Skip("NOTYET_KAFKA_BROKERS is not set: run scripts/servers up and evaluate scripts/servers env")
	}
	name, addr := "access-"+strings.ToLower(rand.Text()[:8]), program.FreeAddr(t)
	m := team{[]string{
		"NOTYET_MYSQL_DSN=" + mysqltest.Fresh(t), "NOTYET_KAFKA_BROKERS=" + brokers, "NOTYET_ELECTION_KIND=mysql", "NOTYET_INDEX_KIND=mysql", "NOTYET_SCANNER_GROUP=" + name,
		"NOTYET_INTAKE_TOPICS=" + name + ".intake", "NOTYET_REPORTS_TOPIC=" + name + ".reports", "NOTYET_RESULTS_TOPIC=" + name + ".results", "NOTYET_WAKES_TOPIC=" + name + ".wakes",
		"NOTYET_MIGRATE_PARTITIONS=2", "NOTYET_MIGRATE_REPLICATION=1", "NOTYET_SLOTS=8", "NOTYET_CALLBACK_ENABLED=true", "NOTYET_HTTP_ADDR=" + addr, "NOTYET_SENDLOG_DIR=" + t.TempDir(), "NOTYET_LOG_LEVEL=info",
	}}
	admin := kadm.NewClient(client(t, brokers))
	t.Cleanup(func() {
		if _, err := admin.DeleteTopics(context.Background(), name+".intake", name+".reports", name+".results", name+".wakes"); err != nil {
			t.Log("deleting a test's topics:", err)
		}
	})
	r := notyet(t, m.environ, "", "migrate")
	require.Equal(t, command.ExitDone, r.code, r.stderr)
	m.serve(t, "all", "took slots", settings...)
	return addr
}

func testAccess(t *testing.T, start func(t *testing.T, settings ...string) (addr string)) {
	w := newAccessWorld(t, start)
	before := map[string]string{}
	for _, topic := range accessTopics {
		if strings.HasSuffix(topic, ".vault") {
			before[topic] = w.all(topic)
		}
	}
	seed := mathrand.Uint64()
	t.Log("seed", seed)
	var workers sync.WaitGroup
	const side = 4
	for n := range side {
		workers.Go(func() {
			rng := mathrand.New(mathrand.NewPCG(seed, uint64(n)))
			for range *combinations / side {
				w.try(rng)
			}
		})
	}
	workers.Wait()
	t.Log("answers", w.counts, "by status", w.statuses)
	if n := len(w.wrong); n > 0 {
		t.Fatalf("%d answers are not what the contract says:\n%s", n, strings.Join(w.wrong[:min(n, 20)], "\n"))
	}
	for v := range unknown + 1 {
		require.NotZero(t, w.counts[v], "verdict %d", v)
	}
	for topic, was := range before {
		require.Equal(t, was, w.all(topic), "somebody changed what is another's")
	}
}

// The table of operations has every path that the API describes.
func TestAccessLeavesNoOperationOut(t *testing.T) {
	d := startDev(t)
	var doc struct{ Paths map[string]map[string]any }
	require.NoError(t, json.Unmarshal([]byte(d.page(t, "/openapi.json")), &doc))
	judged := map[string]bool{}
	for _, o := range operations {
		path, _, _ := strings.Cut(o.path, "?")
		judged[o.method+" "+strings.NewReplacer("{letter}", "{id}", "{operation}", "{id}").Replace(path)] = true
	}
	require.Greater(t, len(doc.Paths), 10)
	for path, methods := range doc.Paths {
		for method := range methods {
			require.True(t, judged[strings.ToUpper(method)+" "+path], "%s %s is in no row of operations", method, path)
		}
	}
}

type accessWorld struct {
	t       *testing.T
	addr    string
	root    string // a token for everything
	callers []identity
	// strangers are refused everywhere.
	strangers []identity
	letters   map[string]string // of each topic
	slots     string

	mu       sync.Mutex
	counts   map[verdict]int
	statuses map[int]int
	wrong    []string
}

// noOperation is the id of none: who stops one may need a role that the table does not know.
const noOperation = "999999"

const accessPublic = "http://127.0.0.1:1" // the test's browser goes to the port that the service has got

func newAccessWorld(t *testing.T, start func(t *testing.T, settings ...string) (addr string)) *accessWorld {
	t.Helper()
	w := &accessWorld{t: t, letters: map[string]string{}, counts: map[verdict]int{}, statuses: map[int]int{}}
	p := oidctest.New(t)
	p.Client("console", "geheim", accessPublic+access.CallbackPath)

	tokens := map[string]string{}
	token := func(name, role string, topics []string) access.Entry {
		level, err := access.ParseRole(role)
		require.NoError(t, err)
		text, entry := access.NewToken(name, level, topics)
		tokens[name] = text
		return entry
	}
	expired := token("expired", "admin", patterns(""))
	expired.Expires = "2025-01-01"
	entries := []access.Entry{expired}
	for _, role := range roles[1:] {
		for _, tenant := range append(tenants, "") {
			name, topics := role+"-"+tenant, patterns(tenant)
			entries = append(entries, token(name, role, topics), access.Entry{Group: name, Role: role, Topics: topics})
		}
	}
	gone := []access.Entry{token("gone", "admin", patterns("")), {Group: "gone", Role: "admin", Topics: patterns("")}}
	w.root = tokens["admin-"]
	file := fileWith(t, "tokens.yaml", "")
	write := func(entries []access.Entry) {
		text, err := yaml.Marshal(entries)
		require.NoError(t, err)
		require.NoError(t, os.WriteFile(file, text, 0o600))
	}
	write(append(gone, entries...))
	w.addr = start(t, "--set", "http.tokens="+file, "--set", "http.jwt.issuer="+p.URL, "--set", "http.jwt.audience="+oidctest.Audience, "--set", "http.sign-in.client-id=console",
		"--set", "http.sign-in.client-secret=geheim", "--set", "http.public-url="+accessPublic)

	add := func(i identity) {
		if i.role == "" {
			w.strangers = append(w.strangers, i)
		} else {
			w.callers = append(w.callers, i)
		}
	}
	claims := func(groups ...string) map[string]any {
		now := time.Now().Unix()
		return map[string]any{"iss": p.URL, "aud": oidctest.Audience, "sub": "s1", "iat": now, "exp": now + 6*3600, "groups": groups}
	}
	with := func(name string, value any) string {
		c := claims("admin-")
		c[name] = value
		return p.Sign(c)
	}
	part := base64.RawURLEncoding.EncodeToString
	unsigned, err := json.Marshal(claims("admin-"))
	require.NoError(t, err)
	root := w.typed(w.root)
	hour := time.Now().Add(time.Hour).Unix()
	for name, authorization := range map[string]string{
		"nobody": "", "no token": "Bearer", "unknown token": "Bearer nyt_" + rand.Text() + rand.Text(), "expired token": "Bearer " + tokens["expired"], "token taken back": "Bearer " + tokens["gone"],
		"lower case": "Bearer " + strings.ToLower(w.root), "basic": "Basic " + base64.StdEncoding.EncodeToString([]byte("admin:"+w.root)), "as it is": w.root,
		"JWT expired": "Bearer " + with("exp", time.Now().Unix()-60), "JWT without end": "Bearer " + with("exp", nil), "JWT for another": "Bearer " + with("aud", "https://other.example"),
		"JWT for the console": "Bearer " + with("aud", "console"), "JWT of another issuer": "Bearer " + with("iss", "https://login.example.com"), "JWT of later": "Bearer " + with("nbf", hour),
		"JWT of nobody's groups": "Bearer " + p.Sign(claims("others")), "JWT of a group taken back": "Bearer " + p.Sign(claims("gone")), "JWT with a pattern as group": "Bearer " + p.Sign(claims("*")),
		"JWT with another key":    "Bearer " + oidctest.New(t).Sign(claims("admin-")),
		"JWT without a signature": "Bearer " + part([]byte(`{"alg":"none"}`)) + "." + part(unsigned) + ".",
	} {
		add(identity{name: name, authorization: authorization})
		if authorization != "" {
			add(identity{name: name + " beside a session", authorization: authorization, session: root})
		}
	}
	for _, role := range roles[1:] {
		for _, tenant := range append(tenants, "") {
			name := role + "-" + tenant
			both := []string{name, "others"}
			if role == "operate" { // a lower role of another tenant's adds nothing
				both = append(both, "read-shop", "read-bank", "read-")
			}
			add(identity{name: name, authorization: "Bearer " + tokens[name], role: role, tenant: tenant})
			add(identity{name: name + " beside a session", authorization: "Bearer " + tokens[name], session: root, role: role, tenant: tenant})
			add(identity{name: "JWT of " + name, authorization: "Bearer " + p.Sign(claims(both...)), role: role, tenant: tenant})
			p.SetGroups(oidctest.Operator, both...)
			add(identity{name: name + " signed in", session: w.atIssuer(), role: role, tenant: tenant, signedIn: true})
			add(identity{name: name + " typed in", session: w.typed(tokens[name]), role: role, tenant: tenant, signedIn: true})
		}
	}
	p.SetGroups(oidctest.Operator, "gone")
	add(identity{name: "session of a group taken back", session: w.atIssuer()})
	add(identity{name: "session of a token taken back", session: w.typed(tokens["gone"])})
	middle := len(root) / 2
	changed := "A"
	if root[middle] == 'A' {
		changed = "B"
	}
	add(identity{name: "changed session", session: root[:middle] + changed + root[middle+1:]})
	add(identity{name: "token as session", session: w.root})
	slices.SortFunc(w.strangers, func(a, b identity) int { return strings.Compare(a.name, b.name) }) // a seed then means the same again
	write(entries)
	require.Eventually(t, func() bool {
		status, _ := w.send(identity{authorization: "Bearer " + tokens["gone"]}, "GET", "/api/v1/slots", "", false)
		return status == http.StatusUnauthorized
	}, time.Minute, 50*time.Millisecond)

	for _, topic := range accessTopics {
		w.fill(topic)
	}
	var slots struct{ Slots int }
	require.NoError(t, json.Unmarshal([]byte(w.get("/api/v1/slots")), &slots))
	require.NotZero(t, slots.Slots)
	w.slots = fmt.Sprint(slots.Slots) // as many as there are: tasks stay where they are
	return w
}

// typed returns the session of an operator who has typed a token.
func (w *accessWorld) typed(token string) string {
	return w.session(func(c *http.Client) (*http.Response, error) {
		return c.PostForm("http://"+w.addr+"/sign-in", url.Values{"token": {token}}) //nolint:noctx // a test's
	})
}

// atIssuer returns the session of an operator who has signed in at the issuer.
func (w *accessWorld) atIssuer() string {
	return w.session(func(c *http.Client) (resp *http.Response, err error) {
		for to := accessPublic + "/sign-in/start"; to != ""; {
			if resp != nil {
				_ = resp.Body.Close()
			}
			if resp, err = c.Get(strings.Replace(to, accessPublic, "http://"+w.addr, 1)); err != nil { //nolint:noctx // a test's
				return nil, err
			}
			next, err := resp.Location()
			if err != nil {
				return resp, nil
			}
			to = next.String()
		}
		return resp, nil
	})
}

func (w *accessWorld) session(signIn func(*http.Client) (*http.Response, error)) string {
	w.t.Helper()
	jar, err := cookiejar.New(nil)
	require.NoError(w.t, err)
	resp, err := signIn(&http.Client{Jar: jar, CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }})
	require.NoError(w.t, err)
	_ = resp.Body.Close()
	at, err := url.Parse("http://" + w.addr)
	require.NoError(w.t, err)
	for _, c := range jar.Cookies(at) {
		if c.Name == "notyet_session" {
			return c.Value
		}
	}
	require.Fail(w.t, "nobody is signed in", resp.Status)
	return ""
}

// fill makes what a topic has.
func (w *accessWorld) fill(topic string) {
	w.t.Helper()
	target, timerURL := fmt.Sprintf(`"topic":%q`, topic), ""
	if strings.HasPrefix(topic, "https:") {
		target = fmt.Sprintf(`"url":%q`, topic+"/hook")
		timerURL = target + ","
	}
	post := func(method, path, body string) {
		status, text := w.send(identity{authorization: "Bearer " + w.root}, method, path, body, false)
		require.Less(w.t, status, 300, text)
	}
	for _, id := range []string{"a", "b"} {
		post("POST", "/api/v1/tasks", fmt.Sprintf(`{%s,"id":%q,"delay":"1000h","value":"SECRET-%s","key":"SECRET-%s","tag":"vip"}`, target, id, topic, topic))
	}
	post("POST", "/api/v1/tasks", fmt.Sprintf(`{%s,"id":"dead","at":"2026-01-01T00:00:00Z","max_lateness":"1s","value":"SECRET-%s","tag":"vip"}`, target, topic))
	post("PUT", "/api/v1/timers/"+url.PathEscape(topic)+"/a", fmt.Sprintf(`{%s"every":"1000h","from":%d,"value":"SECRET-%s"}`, timerURL, time.Now().Add(24*time.Hour).UnixMilli(), topic)) // no run meanwhile
	require.Eventually(w.t, func() bool {
		var letters struct {
			Deadletters []struct{ ID int64 }
		}
		require.NoError(w.t, json.Unmarshal([]byte(w.get("/api/v1/deadletters?topic="+url.QueryEscape(topic))), &letters))
		if len(letters.Deadletters) == 0 {
			return false
		}
		w.letters[topic] = fmt.Sprint(letters.Deadletters[0].ID)
		task, _ := w.send(identity{authorization: "Bearer " + w.root}, "GET", "/api/v1/tasks/"+url.PathEscape(topic)+"/b", "", false)
		timer, _ := w.send(identity{authorization: "Bearer " + w.root}, "GET", "/api/v1/timers/"+url.PathEscape(topic)+"/a", "", false)
		return task == http.StatusOK && timer == http.StatusOK
	}, time.Minute, 50*time.Millisecond, topic)
}

func (w *accessWorld) get(path string) string {
	status, text := w.send(identity{authorization: "Bearer " + w.root}, "GET", path, "", false)
	if status != http.StatusOK {
		w.t.Errorf("%s: %d %s", path, status, text)
	}
	return text
}

// all is everything that the API shows of a topic.
func (w *accessWorld) all(topic string) string {
	var out strings.Builder
	for _, path := range []string{"/tasks?content=true&topic=" + topic, "/tasks/" + topic + "/a", "/deadletters?content=true&topic=" + topic, "/timers?topic=" + topic, "/timers/" + topic + "/a", "/audit?topic=" + topic} {
		out.WriteString(w.get("/api/v1" + path))
	}
	var targets struct {
		Targets []struct{ Topic string }
	}
	require.NoError(w.t, json.Unmarshal([]byte(w.get("/api/v1/targets")), &targets))
	for _, target := range targets.Targets {
		if target.Topic == topic {
			fmt.Fprintf(&out, "has a policy: %v", target)
		}
	}
	return out.String()
}

var accessClient = &http.Client{
	Transport:     &http.Transport{MaxIdleConnsPerHost: 8},
	CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	Timeout:       time.Minute,
}

func (w *accessWorld) send(i identity, method, path, body string, form bool) (int, string) {
	req, err := http.NewRequestWithContext(w.t.Context(), method, "http://"+w.addr+path, strings.NewReader(body))
	if err != nil {
		w.t.Errorf("%s %s: %v", method, path, err)
		return 0, ""
	}
	req.Header.Set("Content-Type", "application/json")
	if form {
		req.Header.Set("Content-Type", "application/x-www-form-urlencoded")
	}
	if i.authorization != "" {
		req.Header.Set("Authorization", i.authorization)
	}
	if i.session != "" {
		req.AddCookie(&http.Cookie{Name: "notyet_session", Value: i.session})
	}
	resp, err := accessClient.Do(req)
	if err != nil {
		w.t.Errorf("%s %s: %v", method, path, err)
		return 0, ""
	}
	defer resp.Body.Close()
	text, err := io.ReadAll(resp.Body)
	if err != nil {
		w.t.Errorf("%s %s: %v", method, path, err)
	}
	return resp.StatusCode, string(text) + resp.Header.Get("Location")
}

func pick[T any](rng *mathrand.Rand, of []T) T { return of[rng.IntN(len(of))] }

// try sends one request and judges the answer.
func (w *accessWorld) try(rng *mathrand.Rand) {
	who := w.callers
	if rng.IntN(4) == 0 {
		who = w.strangers
	}
	i, o, topic, id := pick(rng, who), pick(rng, operations), pick(rng, accessTopics), pick(rng, []string{"a", "b", "c"})
	if o.changes && strings.HasSuffix(topic, ".vault") && judge(i, o, topic) == served {
		topic = strings.TrimSuffix(topic, "vault") + "open"
	}
	path, body, also := o.path, o.body, ""
	escape := url.PathEscape
	if rng.IntN(4) == 0 { // every byte
		escape = func(s string) string {
			var out strings.Builder
			for _, b := range []byte(s) {
				fmt.Fprintf(&out, "%%%02x", b)
			}
			return out.String()
		}
	}
	quote := func(s string) string { return s }
	if rng.IntN(4) == 0 {
		quote = func(s string) string {
			var out strings.Builder
			for _, r := range s {
				fmt.Fprintf(&out, `\u%04x`, r)
			}
			return out.String()
		}
	}
	// Who is for one tenant says a second time, in another way, whose it is.
	if other := map[string]string{"shop": "bank.vault", "bank": "shop.vault"}[i.tenant]; other != "" && rng.IntN(4) == 0 {
		also = other
		if o.page && o.method == "POST" {
			body += "&topic=" + other
		} else if o.method != "GET" && body != "" {
			body = strings.TrimSuffix(body, "}") + fmt.Sprintf(`,%q:%q}`, pick(rng, []string{"topic", "Topic", "TOPIC", "url"}), other)
		} else {
			between := []string{"?", "&", "%2f..%2f", "/../", ";"}
			if o.changes { // the others would make it part of an id, which all of the tenant may see
				between = between[:1]
			}
			path += pick(rng, between) + "topic=" + other
			if !strings.Contains(o.path, "?") {
				path = strings.Replace(path, "{topic}", pick(rng, []string{"{topic}", "{topic}%2f..%2f" + other, "{topic}%00" + other, other + "%2f..%2f{topic}"}), 1)
			}
		}
	}
	path = strings.NewReplacer("{topic}", escape(topic), "{id}", id, "{letter}", w.letters[topic], "{slots}", w.slots, "{operation}", noOperation).Replace(path)
	if o.page {
		quote = escape
	}
	body = strings.NewReplacer("{topic}", quote(topic), "{id}", id, "{letter}", w.letters[topic], "{slots}", w.slots, "{operation}", noOperation).Replace(body)
	status, text := w.send(i, o.method, path, body, o.page)

	var wrong []string
	v := judge(i, o, topic)
	toSignIn := status == http.StatusSeeOther && strings.Contains(text, "/sign-in")
	switch {
	case status == 0 || status >= 500:
		wrong = append(wrong, "failed")
	case also != "" && (v != unknown || status == http.StatusTemporaryRedirect): // what is meant is open; below is what counts
	case v == unknown && status != http.StatusUnauthorized && !(o.page && i.authorization == "" && toSignIn) && !(strings.HasPrefix(i.name, "JWT") && status == http.StatusForbidden):
		wrong = append(wrong, "admitted")
	case v == refused && status != http.StatusForbidden:
		wrong = append(wrong, "not refused")
	case v == hidden && status != http.StatusNotFound:
		wrong = append(wrong, "not hidden")
	case v == served && (toSignIn || !slices.Contains([]int{200, 202, 204, 303, 404, 409, 422, 429}, status)): // the last: as many operations as may run
		wrong = append(wrong, "refused")
	}
	named := o.about == "topic" || strings.Contains(o.path+o.body, "{topic}")
	for _, t := range accessTopics {
		own := v == served && i.sees(t) || also != "" && v != unknown && i.sees(t)
		if strings.Contains(text, "SECRET-"+t) && !(own && i.role != "read") && !strings.Contains(body, "SECRET-") {
			wrong = append(wrong, "shows content of "+t)
		}
		if strings.Contains(text, t) && !own && !(named && t == topic) && t != also {
			wrong = append(wrong, "names "+t)
		}
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	w.counts[v]++
	w.statuses[status]++
	for _, what := range wrong {
		w.wrong = append(w.wrong, fmt.Sprintf("%s: %s (%s %q) %s %s %s: %d %.300s", what, i.name, i.role, i.tenant, o.method, path, body, status, text))
	}
}
