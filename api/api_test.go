package api

import (
	"context"
	"crypto/tls"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kgo"
	"go.uber.org/zap"
	"go.uber.org/zap/zaptest"
	"go.yaml.in/yaml/v3"

	"github.com/notyet/notyet/deadletter"
	"github.com/notyet/notyet/internal/access"
	"github.com/notyet/notyet/internal/embedded"
	"github.com/notyet/notyet/internal/kafka"
	"github.com/notyet/notyet/schemas"
	"github.com/notyet/notyet/store"
	"github.com/notyet/notyet/store/intake"
	"github.com/notyet/notyet/store/letters"
	"github.com/notyet/notyet/store/look"
	"github.com/notyet/notyet/task"
)

// world is an API over a database and a broker of its own.
type world struct {
	t       *testing.T
	store   *store.Store
	local   *Local
	answers *Answers
	broker  string
	mux     *http.ServeMux // without a guard
	url     string
	client  *Client
	tokens  map[string]string // by name: a role, or a role with topics of its own
	source  intake.Source
	next    int64
}

func newWorld(t *testing.T) *world {
	t.Helper()
	log := zaptest.NewLogger(t, zaptest.Level(zap.WarnLevel))
	broker, err := embedded.StartKafka(embedded.Config{Addr: "127.0.0.1:0", Topics: []embedded.Topic{{Name: "in.a"}, {Name: "in.b"}, {Name: "in.c"}, {Name: "results"}, {Name: schemas.TopicCancels, Partitions: 1}}}, log)
	require.NoError(t, err)
	t.Cleanup(broker.Close)
	producer, err := kafka.NewProducer(kafka.Config{Brokers: []string{broker.Addr()}}, log, kgo.RecordPartitioner(Partitioner()))
	require.NoError(t, err)
	t.Cleanup(producer.Close)
	alone, err := kafka.NewSoloProducer(kafka.Config{Brokers: []string{broker.Addr()}}, log, kgo.RecordPartitioner(Partitioner()))
	require.NoError(t, err)
	t.Cleanup(alone.Close)
	w := withoutBroker(t)
	w.broker = broker.Addr()
	w.local.Cancels.Kafka = func(context.Context) (*kgo.Client, error) { return producer, nil }
	w.answers = NewAnswers("results", func() (*kgo.Client, error) { return kafka.New(kafka.Config{Brokers: []string{broker.Addr()}}, log) }, log)
	t.Cleanup(w.answers.Close)
	mux := http.NewServeMux()
	Mount(mux, Alone(w.local), NewPublisher(producer, alone), Config{Version: "test", Answers: w.answers, Intakes: fixed(
		Intake{Topic: "in.a", Limits: schemas.Limits{InternalTopics: []string{"in.a", "in.b"}, MaxDelay: 48 * time.Hour}},
		Intake{Topic: "in.b", Limits: schemas.Limits{AllowedTargets: []string{"bills"}}},
		Intake{Topic: "in.c", Limits: schemas.Limits{Target: "carts", AllowedTargets: []string{"carts"}}},
	)})
	w.mux, w.tokens = mux, map[string]string{}
	guard, err := access.New(access.Config{Tokens: w.tokensFile()}, log)
	require.NoError(t, err)
	server := httptest.NewServer(guard.Handler(mux))
	t.Cleanup(server.Close)
	w.url, w.client = server.URL, NewClient(ClientConfig{Addr: strings.TrimPrefix(server.URL, "http://"), Token: w.tokens["admin"]})
	return w
}

// withoutBroker is a world of a database alone, which may live in synctest's time: see inProcess.
func withoutBroker(t *testing.T) *world {
	t.Helper()
	log := zaptest.NewLogger(t, zaptest.Level(zap.WarnLevel))
	st, err := store.Open(t.Context(), store.Config{DSN: "sqlite:" + t.TempDir() + "/notyet.db"}, log)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, st.Close()) })
	require.NoError(t, st.Migrate(t.Context(), 4))
	w := &world{t: t, store: st, local: NewLocal(st, deadletter.NewLocal(st, nil, "test", log)), answers: NewAnswers("results", nil, log)}
	w.source, err = intake.New(st).Source(t.Context(), "in.a", [16]byte{1}, 0, 0)
	require.NoError(t, err)
	return w
}

// fixed are intakes whose limits do not change.
func fixed(intakes ...Intake) func() []Intake { return func() []Intake { return intakes } }

// tokensFile makes a token of each role for all topics, for orders, and for bills.
func (w *world) tokensFile() string {
	w.t.Helper()
	var entries []access.Entry
	for _, role := range []access.Role{access.Read, access.Operate, access.Admin} {
		for name, topics := range map[string][]string{role.String(): access.Everything, role.String() + " of orders": {"orders"}, role.String() + " of bills": {"bill*"}} {
			token, entry := access.NewToken(strings.ReplaceAll(name, " ", "-"), role, topics)
			w.tokens[name], entries = token, append(entries, entry)
		}
	}
	text, err := yaml.Marshal(entries)
	require.NoError(w.t, err)
	path := filepath.Join(w.t.TempDir(), "tokens.yaml")
	require.NoError(w.t, os.WriteFile(path, text, 0o600))
	return path
}

// put stores a change as the scanner would.
func (w *world) put(c task.Change) {
	w.t.Helper()
	c.Seq = task.Seq(w.source.ID, w.next)
	if c.Rejected != nil {
		c.Rejected.Seq = c.Seq
	}
	_, err := intake.New(w.store).Apply(w.t.Context(), intake.Batch{Advance: []intake.Advance{{Source: w.source.ID, From: w.next, To: w.next + 1}}, Changes: []task.Change{c}}, store.At(time.Now().UnixMilli()))
	require.NoError(w.t, err)
	w.next++
}

func (w *world) schedule(topic, id string, due int64, key, value []byte) {
	w.t.Helper()
	settings := schemas.DefaultSettings()
	settings.Ack = schemas.AckReport
	w.put(task.Change{Request: &schemas.Request{
		Topic: topic, ID: id, GivenID: true, Due: due, Accepted: due, Version: 7, Key: key, Value: value,
		Headers: []kgo.RecordHeader{{Key: "trace", Value: []byte("x")}}, Settings: settings,
	}})
}

func (w *world) do(method, path, body string) (int, string) {
	w.t.Helper()
	return w.as("admin", method, path, body)
}

// as sends a request with the token of that name; an unknown name sends none.
func (w *world) as(name, method, path, body string) (int, string) {
	w.t.Helper()
	req, err := http.NewRequestWithContext(w.t.Context(), method, w.url+path, strings.NewReader(body))
	require.NoError(w.t, err)
	req.Header.Set("Content-Type", "application/json")
	if token := w.tokens[name]; token != "" {
		req.Header.Set("Authorization", "Bearer "+token)
	}
	resp, err := http.DefaultClient.Do(req)
	require.NoError(w.t, err)
	defer resp.Body.Close()
	answer, err := io.ReadAll(resp.Body)
	require.NoError(w.t, err)
	if resp.StatusCode >= 400 {
		require.Equal(w.t, "application/problem+json", resp.Header.Get("Content-Type"))
	}
	return resp.StatusCode, string(answer)
}

// records reads what is in a topic, all of it.
func (w *world) records(topic string, n int) []*kgo.Record {
	w.t.Helper()
	c, err := kgo.NewClient(kgo.SeedBrokers(w.broker), kgo.ConsumeTopics(topic), kgo.ConsumeStartOffset(kgo.NewOffset().AtStart()))
	require.NoError(w.t, err)
	defer c.Close()
	var out []*kgo.Record
	for len(out) < n {
		fetches := c.PollFetches(w.t.Context())
		require.NoError(w.t, fetches.Err())
		out = append(out, fetches.Records()...)
	}
	return out
}

func TestGetFindsAnyID(t *testing.T) {
	w := newWorld(t)
	due := time.Now().Add(time.Hour).UnixMilli()
	for i, id := range []string{"plain", "a/b", "..", "ü ?&=#%2F", "notyet.intake/3/42", "new\nline"} {
		w.schedule("orders", id, due, []byte("k"), []byte(fmt.Sprint(i)))
		for _, path := range []string{
			"/api/v1/task?" + url.Values{"topic": {"orders"}, "id": {id}}.Encode(),
			"/api/v1/tasks/orders/" + url.PathEscape(id),
		} {
			if id == ".." && !strings.Contains(path, "?") {
				continue // no path can carry it: that is what the query is for
			}
			code, answer := w.do("GET", path, "")
			require.Equal(t, 200, code, "%s: %s", path, answer)
			var task Task
			require.NoError(t, json.Unmarshal([]byte(answer), &task))
			require.Equal(t, id, task.ID)
			require.Equal(t, fmt.Sprint(i), *task.Value)
		}
		task, err := w.client.Task(t.Context(), "orders", id)
		require.NoError(t, err)
		require.Equal(t, id, task.ID)
	}
}

func TestGetShowsEverything(t *testing.T) {
	w := newWorld(t)
	due := time.Now().Add(time.Hour).UnixMilli()
	w.schedule("orders", "a", due, nil, []byte{0xff, 0})
	code, answer := w.do("GET", "/api/v1/task?topic=orders&id=a", "")
	require.Equal(t, 200, code)
	slot := 0
	if task, err := w.client.Task(t.Context(), "orders", "a"); err == nil {
		slot = task.Slot
	}
	require.JSONEq(t, fmt.Sprintf(`{"topic":"orders","id":"a","state":"pending","due":%d,"next":%d,"attempt":0,"replay":0,"version":7,"created":%d,"slot":%d,
		"settings":{"priority":"normal","ack":"report","ack_timeout":"1m0s","max_attempts":16,"backoff":"exponential:1s:10m0s","events":"final"},
		"key":null,"value":null,"value_base64":"/wA=","headers":[{"key":"trace","value":"x"}],"events":[{"state":"scheduled","at":%d,"due":%d}],
		"why":{"reason":"not-due","detail":"The task is not due yet."}}`, due, due, due, slot, due, due), answer)

	code, answer = w.do("GET", "/api/v1/task?topic=orders&id=b", "")
	require.Equal(t, 404, code)
	require.Contains(t, answer, "no task of this topic and id is known")
	_, err := w.client.Task(t.Context(), "orders", "b")
	require.ErrorIs(t, err, look.ErrNotFound)
}

func TestList(t *testing.T) {
	w := newWorld(t)
	now := time.Now().UnixMilli()
	for i := range 5 {
		w.schedule("orders", fmt.Sprint(i), now+int64(10-i)*60_000, nil, []byte("v"))
	}
	w.schedule("bills", "x", now+1000, nil, nil)
	tasks, err := w.client.Tasks(t.Context(), TaskFilter{Topic: "orders", Limit: 2})
	require.NoError(t, err)
	require.Len(t, tasks.Tasks, 2)
	require.Equal(t, "4", tasks.Tasks[0].ID, "what comes first stands first")
	require.Nil(t, tasks.Tasks[0].Content)
	tasks, err = w.client.Tasks(t.Context(), TaskFilter{Topic: "orders", Cursor: tasks.Cursor, IDPrefix: "2", State: "pending"})
	require.NoError(t, err)
	require.Len(t, tasks.Tasks, 1)
	require.Equal(t, "2", tasks.Tasks[0].ID)
	require.Empty(t, tasks.Cursor, "the last page has none")

	local, err := w.local.Tasks(t.Context(), TaskFilter{Content: true})
	require.NoError(t, err)
	remote, err := w.client.Tasks(t.Context(), TaskFilter{Content: true})
	require.NoError(t, err)
	require.Len(t, local.Tasks, 6)
	require.Equal(t, local, remote, "both ways of asking answer the same")
	none, err := w.client.Tasks(t.Context(), TaskFilter{Ended: true})
	require.NoError(t, err)
	require.Empty(t, none.Tasks)

	code, answer := w.do("GET", "/api/v1/tasks?limit=9999", "")
	require.Equal(t, 422, code)
	require.Contains(t, answer, "query.limit")
	for query, want := range map[string]string{"cursor=x": "cursor", "cursor=1.2.3.4": "cursor", "state=lost": "query.state"} {
		code, answer = w.do("GET", "/api/v1/tasks?"+query, "")
		require.Equal(t, 422, code, query)
		require.Contains(t, answer, want)
	}
	code, answer = w.do("GET", "/api/v1/tasks?topik=orders", "")
	require.Equal(t, 422, code)
	require.Contains(t, answer, "query.topik")
}

func TestScheduleGoesToTheIntake(t *testing.T) {
	w := newWorld(t)
	code, answer := w.do("POST", "/api/v1/tasks", `{"topic":"orders","id":"a","delay":"PT90S","priority":"high","version":3,"max_attempts":2,"if_exists":"keep","tag":"vip,shop:7",
		"key":"k","value_base64":"AP8=","headers":[{"key":"h","value":"1"},{"key":"h","value":"2"},{"key":"n","value":null}]}`)
	require.Equal(t, 202, code, answer)
	r := w.records("in.a", 1)[0]
	require.Equal(t, []byte("k"), r.Key)
	require.Equal(t, []byte{0, 0xff}, r.Value)
	req, err := schemas.Decode(r, schemas.Limits{})
	require.NoError(t, err)
	require.Equal(t, "a", req.ID)
	require.Equal(t, int64(3), req.Version)
	require.Equal(t, schemas.PriorityHigh, req.Settings.Priority)
	require.Equal(t, schemas.Keep, req.Settings.IfExists)
	require.Equal(t, 2, req.Settings.MaxAttempts)
	require.Equal(t, "vip,shop:7", req.Settings.Tag)
	require.InDelta(t, r.Timestamp.UnixMilli()+90_000, req.Due, 10_000)
	require.Equal(t, []kgo.RecordHeader{{Key: "h", Value: []byte("1")}, {Key: "h", Value: []byte("2")}, {Key: "n"}}, req.Headers)
	var p Published
	require.NoError(t, json.Unmarshal([]byte(answer), &p))
	require.Equal(t, Published{Topic: "orders", ID: "a", Op: "schedule", Due: req.Due, Intake: "in.a", Partition: r.Partition, Offset: r.Offset, Request: schemas.DefaultID("in.a", r.Partition, r.Offset)}, p)

	// A broker that writes its own timestamp, here of an hour later, changes nothing of what was answered.
	stamped := *r
	stamped.Timestamp = stamped.Timestamp.Add(time.Hour)
	later, err := schemas.Decode(&stamped, schemas.Limits{})
	require.NoError(t, err)
	require.Equal(t, p.Due, later.Due)

	due := time.Now().Add(time.Hour).UnixMilli()
	code, answer = w.do("POST", "/api/v1/tasks", fmt.Sprintf(`{"intake":"in.b","topic":"bills","at":%d}`, due))
	require.Equal(t, 202, code, answer)
	require.NoError(t, json.Unmarshal([]byte(answer), &p))
	require.Equal(t, fmt.Sprintf("in.b/%d/0", p.Partition), p.ID)
	require.Equal(t, due, p.Due)
	require.Nil(t, w.records("in.b", 1)[0].Key)

	local := time.UnixMilli(due).UTC().Truncate(time.Minute)
	code, answer = w.do("POST", "/api/v1/tasks", `{"intake":"in.b","topic":"bills","at":"`+local.Add(330*time.Minute).Format("2006-01-02T15:04")+`","timezone":"Asia/Kolkata"}`)
	require.Equal(t, 202, code, answer)
	require.NoError(t, json.Unmarshal([]byte(answer), &p))
	require.Equal(t, local.UnixMilli(), p.Due)

	code, answer = w.do("POST", "/api/v1/tasks", `{"topic":"orders","id":"a","key":"k","delay":"1h","if_exists":"merge","max_wait":"10s"}`)
	require.Equal(t, 202, code, answer)
	require.NoError(t, json.Unmarshal([]byte(answer), &p))
	require.Equal(t, w.records("in.a", 2)[1].Timestamp.UnixMilli()+10_000, p.Due, "max_wait bounds the due time of a new task, too")
}

// A request that is answered is not rejected afterwards: the broker's clock may be behind the database's.
func TestDelayUpToTheHorizon(t *testing.T) {
	w := newWorld(t)
	code, answer := w.do("POST", "/api/v1/tasks", `{"topic":"orders","id":"a","delay":"48h"}`)
	require.Equal(t, 202, code, answer)
	r := w.records("in.a", 1)[0]
	for _, behind := range []time.Duration{0, 5 * time.Second} {
		stamped := *r
		stamped.Timestamp = r.Timestamp.Add(-behind)
		req, err := schemas.Decode(&stamped, schemas.Limits{MaxDelay: 48 * time.Hour})
		require.NoError(t, err, behind)
		require.Equal(t, stamped.Timestamp.Add(48*time.Hour).UnixMilli(), req.Due)
	}
}

func TestCancelAndFire(t *testing.T) {
	w := newWorld(t)
	for _, op := range []string{"cancel", "stop", "fire"} {
		code, answer := w.do("POST", "/api/v1/tasks/"+op, `{"topic":"orders","id":"a","version":5}`)
		require.Equal(t, 202, code, answer)
		require.Contains(t, answer, `"op":"`+op+`"`)
	}
	code, answer := w.do("POST", "/api/v1/tasks", `{"topic":"orders","id":"a","delay":"1h"}`)
	require.Equal(t, 202, code, answer)
	records := w.records("in.a", 4)
	require.Equal(t, records[0].Partition, records[1].Partition, "without a key, the id keeps requests about one task in order")
	require.Equal(t, records[0].Partition, records[2].Partition)
	require.Equal(t, records[0].Partition, records[3].Partition)
}

func TestMistakesNameTheFieldAndTheFix(t *testing.T) {
	w := newWorld(t)
	for _, c := range []struct{ path, body, location, message string }{
		{"/tasks", `{"topic":"orders"}`, "body.at", "is missing"},
		{"/tasks", `{"topic":"orders","delay":"-1s"}`, "body.delay", "is negative"},
		{"/tasks", `{"topic":"orders","delay":"72h"}`, "body.delay", "horizon"},
		{"/tasks", `{"topic":"orders","at":"tomorrow"}`, "body.at", "RFC 3339"},
		{"/tasks", `{"topic":"orders","at":"2027-01-31T08:00"}`, "body.at", "or send timezone"},
		{"/tasks", `{"topic":"orders","at":"2027-02-29T08:00:00Z"}`, "body.at", "February 2027 has 28 days"},
		{"/tasks", `{"topic":"orders","delay":"1h","timezone":"UTC"}`, "body.timezone", "or write at without an offset"},
		{"/tasks", `{"topic":"orders","at":"2027-01-31T08:00","timezone":"Mars/North"}`, "body.timezone", "IANA"},
		{"/tasks", `{"topic":"in.b","delay":"1s"}`, "body.topic", "internal topic"},
		{"/tasks", `{"topic":"orders","delay":"1s","priority":"urgent"}`, "body.priority", "normal"},
		{"/tasks", `{"topic":"orders","delay":"1s","max_attempts":0}`, "body.max_attempts", "1 to"},
		{"/tasks", `{"topic":"orders","delay":"1s","headers":[{"key":"Notyet-Op","value":"cancel"}]}`, "body.headers[0].key", "fields of their own"},
		{"/tasks", `{"topic":"orders","delay":"1s","value":"a","value_base64":"eA=="}`, "body.value_base64", "one of them"},
		{"/tasks", `{"topic":"orders","delay":"1s","dealy":"2s"}`, "body.dealy", "unexpected"},
		{"/tasks", `{"delay":"1s"}`, "body.topic", "is missing"},
		{"/tasks", `{"topic":"orders","url":"https://shop.example/","delay":"1s"}`, "body.url", "stands beside"},
		{"/tasks", `{"url":"https://u:p@shop.example/","delay":"1s"}`, "body.url", "user info"},
		{"/tasks", `{"url":"https://shop.example/","method":"HEAD","delay":"1s"}`, "body.method", "POST, PUT"},
		{"/tasks", `{"topic":"orders","method":"PUT","delay":"1s"}`, "body.method", "leave it out, or send url"},
		{"/tasks", `{"topic":"https://shop.example","delay":"1s"}`, "body.topic", "is an origin"},
		{"/tasks", `{"topic":"orders","delay":"1s","id":""}`, "body.id", "length >= 1"}, // an empty one is a mistake, as in a header
		{"/tasks", `{"topic":"orders","delay":"1s","ack":""}`, "body.ack", "length >= 1"},
		{"/tasks/cancel", `{"id":"a"}`, "body.topic", "is missing"},
		{"/tasks", `{"intake":"nope","topic":"orders","delay":"1s"}`, "body.intake", "configured"},
		{"/tasks", `{"intake":"in.b","topic":"orders","delay":"1s"}`, "body.topic", "not allowed"},
		{"/tasks/cancel", `{"topic":"orders","id":""}`, "body.id", "needs the id"},
		{"/tasks/fire", `{"topic":"or ders","id":"a"}`, "body.topic", "topic name"},
		{"/deadletters/replay", `{}`, "body.all", "no filter"},
		{"/deadletters/purge", `{"topic":"orders","all":true}`, "body.all", "stands beside"},
	} {
		code, answer := w.do("POST", "/api/v1"+c.path, c.body)
		require.Equal(t, 422, code, "%s: %s", c.body, answer)
		require.Contains(t, answer, `"location":"`+c.location+`"`, c.body)
		require.Contains(t, answer, c.message, c.body)
	}
	code, _ := w.do("POST", "/api/v1/tasks", `{`)
	require.Equal(t, 400, code)
	code, answer := w.do("POST", "/api/v1/tasks", `{"topic":"orders","delay":"1s","at":""}`)
	require.GreaterOrEqual(t, code, 400)
	require.Contains(t, answer, "leave it out")
}

func TestDeadLettersBothWays(t *testing.T) {
	w := newWorld(t)
	for i := range 3 {
		record := &kgo.Record{Value: []byte{0xff}, Headers: []kgo.RecordHeader{{Key: "notyet-delay", Value: []byte("soon")}}}
		w.put(task.Change{Rejected: &task.DeadLetter{Kind: schemas.KindRejected, Topic: "orders", TaskID: fmt.Sprint(i), Reason: "notyet-delay", Body: schemas.EncodeRejected(record)}})
	}
	local, err := w.local.Letters(t.Context(), letters.Filter{}, "", true)
	require.NoError(t, err)
	remote, err := w.client.Letters(t.Context(), letters.Filter{}, "", true)
	require.NoError(t, err)
	require.Len(t, local.Letters, 3)
	require.Equal(t, local, remote)

	one, err := w.client.Letter(t.Context(), local.Letters[1].ID)
	require.NoError(t, err)
	require.Equal(t, local.Letters[1], one)
	_, err = w.client.Letter(t.Context(), 999)
	require.ErrorIs(t, err, deadletter.ErrNotFound)

	filter := letters.Filter{IDs: []int64{local.Letters[0].ID, local.Letters[2].ID}, Reason: "delay", Topic: "orders", Until: 1 << 47}
	n, err := w.client.CountLetters(t.Context(), filter)
	require.NoError(t, err)
	require.Equal(t, int64(2), n)
	result, err := deadletter.Replay(t.Context(), w.client, filter, deadletter.Options{DryRun: true})
	require.NoError(t, err)
	require.Equal(t, int64(2), result.Skipped)
	code, answer := w.do("POST", "/api/v1/deadletters/purge", `{"topic":"orders","reason":"delay","dry_run":true}`)
	require.Equal(t, 200, code, answer)
	require.JSONEq(t, `{"deleted":3,"next":0,"up_to":0}`, answer, "and nothing is deleted yet")
	purged, err := deadletter.Purge(t.Context(), w.client, filter, nil)
	require.NoError(t, err)
	require.Equal(t, int64(2), purged)
	purged, err = deadletter.Purge(t.Context(), w.client, letters.Filter{}, nil)
	require.NoError(t, err)
	require.Equal(t, int64(1), purged)
}

func TestDescription(t *testing.T) {
	w := newWorld(t)
	code, answer := w.do("GET", "/openapi.json", "")
	require.Equal(t, 200, code)
	var doc struct {
		OpenAPI string
		Paths   map[string]any
	}
	require.NoError(t, json.Unmarshal([]byte(answer), &doc))
	require.Equal(t, "3.1.0", doc.OpenAPI)
	require.Contains(t, doc.Paths, "/api/v1/tasks/{topic}/{id}")
	require.NotContains(t, answer, "$schema")
}

func TestClientSaysWhatTheServerSaid(t *testing.T) {
	w := newWorld(t)
	_, err := w.client.Tasks(t.Context(), TaskFilter{Limit: 5000})
	require.ErrorContains(t, err, "limit expected number <= 1000")
	other := httptest.NewServer(http.NotFoundHandler())
	defer other.Close()
	_, err = NewClient(ClientConfig{Addr: strings.TrimPrefix(other.URL, "http://")}).Task(t.Context(), "a", "b")
	require.ErrorContains(t, err, "the API answered 404", "another program's 404 does not mean that there is no such task")
	secured := httptest.NewTLSServer(http.NotFoundHandler())
	defer secured.Close()
	_, err = NewClient(ClientConfig{Addr: secured.Listener.Addr().String()}).Task(t.Context(), "a", "b")
	require.ErrorContains(t, err, "set http.tls.enabled")
	_, err = NewClient(ClientConfig{Addr: secured.Listener.Addr().String(), TLS: &tls.Config{}}).Task(t.Context(), "a", "b")
	require.ErrorContains(t, err, "see http.tls.ca")
	_, err = NewClient(ClientConfig{Addr: other.Listener.Addr().String(), TLS: &tls.Config{}}).Task(t.Context(), "a", "b")
	require.ErrorContains(t, err, "see http.tls.enabled")
	_, err = NewClient(ClientConfig{Addr: ":1"}).Task(t.Context(), "a", "b")
	require.ErrorContains(t, err, "127.0.0.1:1")
}
