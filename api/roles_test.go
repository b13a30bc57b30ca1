package api

import (
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/notyet/notyet/schemas"
	"github.com/notyet/notyet/store/admin"
	"github.com/notyet/notyet/task"
)

// call is one operation as a caller meets it. ROLE is the role that it needs; {topic} stands for
// the topic that it is about.
type call struct {
	role, method, path, body string
	// wide calls are about every topic where none is named: "filtered" answers with the caller's
	// own, "own" with figures of those, "refused" does not, "open" says nothing about topics.
	wide string
}

var calls = map[string]call{
	"list-tasks":         {"read", "GET", "/api/v1/tasks?topic={topic}", "", ""},
	"list-all-tasks":     {"read", "GET", "/api/v1/tasks", "", "filtered"},
	"list-with-content":  {"operate", "GET", "/api/v1/tasks?topic={topic}&content=true", "", ""},
	"get-task":           {"read", "GET", "/api/v1/tasks/{topic}/a", "", ""},
	"find-task":          {"read", "GET", "/api/v1/task?topic={topic}&id=a", "", ""},
	"schedule-task":      {"operate", "POST", "/api/v1/tasks", `{"topic":"{topic}","id":"b","delay":"1h","value":"x"}`, ""},
	"cancel-task":        {"operate", "POST", "/api/v1/tasks/cancel", `{"topic":"{topic}","id":"c"}`, ""},
	"stop-task":          {"operate", "POST", "/api/v1/tasks/stop", `{"topic":"{topic}","id":"c"}`, ""},
	"stop-by-path":       {"operate", "POST", "/api/v1/tasks/{topic}/a/stop", "", ""},
	"fire-task":          {"operate", "POST", "/api/v1/tasks/fire", `{"topic":"{topic}","id":"c"}`, ""},
	"cancel-by-path":     {"operate", "POST", "/api/v1/tasks/{topic}/a/cancel?wait=1ms", "", ""},
	"fire-by-path":       {"operate", "POST", "/api/v1/tasks/{topic}/a/fire", "", ""},
	"cancel-many":        {"operate", "POST", "/api/v1/tasks/cancel-many", `{"topic":"{topic}","id_prefix":"none"}`, ""},
	"cancel-many-all":    {"operate", "POST", "/api/v1/tasks/cancel-many", `{"id_prefix":"none"}`, "refused"},
	"forecast":           {"read", "GET", "/api/v1/forecast?topic={topic}", "", ""},
	"forecast-of-all":    {"read", "GET", "/api/v1/forecast", "", "refused"},
	"forecast-of-own":    {"read", "GET", "/api/v1/forecast?own=true", "", "own"},
	"list-deadletters":   {"read", "GET", "/api/v1/deadletters?topic={topic}", "", ""},
	"list-all-letters":   {"read", "GET", "/api/v1/deadletters", "", "filtered"},
	"letters-content":    {"operate", "GET", "/api/v1/deadletters?topic={topic}&content=true", "", ""},
	"count-deadletters":  {"read", "GET", "/api/v1/deadletters/count?topic={topic}", "", ""},
	"count-all-letters":  {"read", "GET", "/api/v1/deadletters/count", "", "refused"},
	"get-deadletter":     {"read", "GET", "/api/v1/deadletters/{letter}", "", "hidden"},
	"replay-deadletters": {"operate", "POST", "/api/v1/deadletters/replay", `{"topic":"{topic}","dry_run":true}`, ""},
	"replay-by-id":       {"operate", "POST", "/api/v1/deadletters/replay", `{"ids":[1],"dry_run":true}`, "refused"},
	"replay-deadletter":  {"operate", "POST", "/api/v1/deadletters/{letter}/replay", `{"value":"x"}`, "hidden"},
	"purge-deadletters":  {"admin", "POST", "/api/v1/deadletters/purge", `{"topic":"{topic}","task_id":"none"}`, ""},
	"cluster":            {"read", "GET", "/api/v1/cluster", "", "open"},
	"show-slots":         {"read", "GET", "/api/v1/slots", "", "open"},
	"set-slots":          {"admin", "PUT", "/api/v1/slots", `{"slots":4}`, "refused"},
	"list-shards":        {"admin", "GET", "/api/v1/shards", "", "refused"},
	"move-targets":       {"admin", "POST", "/api/v1/shards/moves", `{"shard":0,"pattern":"{topic}"}`, "refused"},
	"overview":           {"read", "GET", "/api/v1/overview", "", "refused"},
	"overview-of-own":    {"read", "GET", "/api/v1/overview?own=true", "", "own"},
	"overview-of-topic":  {"read", "GET", "/api/v1/overview?topic={topic}", "", ""},
	"overview-own-topic": {"read", "GET", "/api/v1/overview?own=true&topic={topic}", "", ""},
	"list-audit":         {"read", "GET", "/api/v1/audit?topic={topic}", "", ""},
	"list-all-audit":     {"read", "GET", "/api/v1/audit", "", "filtered"},
	"note-request":       {"operate", "POST", "/api/v1/audit", `{"what":"cancel","topic":"{topic}","task":"a"}`, ""},
	"list-timers":        {"read", "GET", "/api/v1/timers?topic={topic}", "", ""},
	"list-all-timers":    {"read", "GET", "/api/v1/timers", "", "filtered"},
	"get-timer":          {"read", "GET", "/api/v1/timers/{topic}/a", "", ""},
	"set-timer":          {"operate", "PUT", "/api/v1/timers/{topic}/a", `{"every":"1h","value":"x"}`, ""},
	"delete-timer":       {"operate", "DELETE", "/api/v1/timers/{topic}/a", "", ""},
	"enable-timer":       {"operate", "POST", "/api/v1/timers/{topic}/a/enable", "", ""},
	"disable-timer":      {"operate", "POST", "/api/v1/timers/{topic}/a/disable?wait=1ms", "", ""},
	"run-timer":          {"operate", "POST", "/api/v1/timers/{topic}/a/run", "", ""},
	"backfill-timer":     {"operate", "POST", "/api/v1/timers/{topic}/a/backfill", `{"from":"2026-01-01T00:00:00Z","to":"2026-01-01T09:00:00Z"}`, ""},
	"audit-timer":        {"read", "GET", "/api/v1/timers/{topic}/a/audit", "", ""},
	"preview-timer":      {"read", "POST", "/api/v1/timers/preview", `{"cron":"@daily"}`, "nothing"},
	"list-operations":    {"read", "GET", "/api/v1/operations", "", "filtered"},
	"get-operation":      {"read", "GET", "/api/v1/operations/{letter}", "", "hidden"},
	"stop-operation":     {"operate", "DELETE", "/api/v1/operations/{letter}", "", "hidden"},
	"cancel-many-async":  {"operate", "POST", "/api/v1/tasks/cancel-many?async=true", `{"topic":"{topic}","id_prefix":"none"}`, ""},
	"cancel-all-async":   {"operate", "POST", "/api/v1/tasks/cancel-many?async=true", `{"id_prefix":"none"}`, "refused"},
	"purge-async":        {"admin", "POST", "/api/v1/deadletters/purge?async=true", `{"topic":"{topic}","task_id":"none"}`, ""},
	"list-targets":       {"read", "GET", "/api/v1/targets", "", "filtered"},
	"set-target":         {"operate", "PUT", "/api/v1/targets/{topic}", `{"paused":true}`, ""},
	"change-target":      {"operate", "PATCH", "/api/v1/targets/{topic}", `{"rate":5}`, ""},
	"purge-all":          {"admin", "POST", "/api/v1/deadletters/purge", `{"ids":[99]}`, "refused"},
}

// secretive is a world with a task and a dead letter of each of two topics, whose content reads
// SECRET.
func secretive(t *testing.T) (*world, map[string]string) {
	t.Helper()
	w := newWorld(t)
	for _, topic := range []string{"orders", "bills"} {
		_, err := admin.New(w.store).SetPolicy(t.Context(), topic, 1, func(admin.Policy) admin.Policy { return admin.Policy{Paused: true} })
		require.NoError(t, err)
		_, err = admin.OperationsIn(w.store).Begin(t.Context(), admin.Operation{What: cancelling, Topic: topic, Progress: admin.Progress{Result: []byte("{}")}}, func(int64) ([]byte, error) { return []byte("SECRET"), nil })
		require.NoError(t, err)
		w.setTimer(topic, "a", schemas.Timer{Every: time.Hour}, []byte("SECRET"))
		w.schedule(topic, "a", time.Now().Add(time.Hour).UnixMilli(), []byte("SECRET key"), []byte("SECRET value"))
		record := &kgo.Record{Key: []byte("SECRET"), Value: []byte("SECRET"), Headers: []kgo.RecordHeader{{Key: "h", Value: []byte("SECRET")}}}
		require.NoError(t, admin.New(w.store).Audit(t.Context(), []admin.AuditEntry{{Actor: admin.Actor{Who: "ann"}, What: "cancel", Topic: topic, Detail: "{}"}}))
		w.put(task.Change{Rejected: &task.DeadLetter{Kind: schemas.KindRejected, Topic: topic, TaskID: "dead", Reason: "bad", Body: schemas.EncodeRejected(record)}})
	}
	return w, map[string]string{"orders": "1", "bills": "2"}
}

func TestRoleByPathByTopic(t *testing.T) {
	w, letters := secretive(t)
	require.NoError(t, admin.New(w.store).SaveMinute(t.Context(), "d1", last(time.Now())-3, []byte(`{"v":1,"n":{"delivered":9},"targets":[{"t":"orders","n":[5]},{"t":"bills","n":[4]}]}`)))
	roles := []string{"read", "operate", "admin"}
	for name, c := range calls {
		for _, topic := range []string{"orders", "bills"} {
			fill := strings.NewReplacer("{topic}", topic, "{letter}", letters[topic])
			for token := range w.tokens {
				role, restricted := strings.CutSuffix(token, " of orders")
				if strings.HasSuffix(token, " of bills") {
					continue
				}
				code, answer := w.as(token, c.method, fill.Replace(c.path), fill.Replace(c.body))
				about := fmt.Sprintf("%s as %s about %s: %s", name, token, topic, answer)
				switch {
				case slices.Index(roles, role) < slices.Index(roles, c.role):
					require.Equal(t, 403, code, about)
				case restricted && c.wide == "refused":
					require.Equal(t, 403, code, about)
				case restricted && c.wide == "filtered":
					require.Equal(t, 200, code, about)
					require.Contains(t, answer, `"topic":"orders"`, about)
					require.NotContains(t, answer, "bills", about)
				case restricted && c.wide == "own":
					require.Equal(t, 200, code, about)
					require.NotContains(t, answer, "bills", about)
				case restricted && topic == "bills" && c.wide == "hidden":
					require.Equal(t, 404, code, about)
				case restricted && topic == "bills" && c.wide == "":
					require.Equal(t, 403, code, about)
				case code == 409:
					require.Equal(t, "stop-operation", name, "another has stopped it: %s", about)
				default:
					require.Less(t, code, 300, about)
				}
				if code < 300 && role == "read" {
					require.NotContains(t, answer, "SECRET", about)
				}
				if code == 403 {
					require.NotContains(t, answer, "SECRET", about)
				}
			}
			for _, nobody := range []string{"", "unknown"} {
				code, _ := w.as(nobody, c.method, fill.Replace(c.path), fill.Replace(c.body))
				require.Equal(t, 401, code, name)
			}
		}
	}
	code, answer := w.as("operate", "GET", "/api/v1/tasks/orders/a", "")
	require.Equal(t, 200, code)
	require.Contains(t, answer, "SECRET value")
	code, answer = w.as("operate", "GET", "/api/v1/deadletters/1", "")
	require.Equal(t, 200, code)
	require.Contains(t, answer, "SECRET")
}

// TestNoOperationIsLeftOut keeps the table above complete: what the description has and the table
// does not is not judged.
func TestNoOperationIsLeftOut(t *testing.T) {
	w := newWorld(t)
	code, answer := w.do("GET", "/openapi.json", "")
	require.Equal(t, 200, code)
	var doc struct {
		Paths map[string]map[string]struct{ OperationID string }
	}
	require.NoError(t, json.Unmarshal([]byte(answer), &doc))
	judged := map[string]bool{}
	for _, c := range calls {
		judged[c.method+" "+shape(c.path)] = true
	}
	n := 0
	for path, methods := range doc.Paths {
		for method, op := range methods {
			n++
			require.True(t, judged[strings.ToUpper(method)+" "+shape(path)], "%s (%s %s) is in no row of calls", op.OperationID, method, path)
		}
	}
	require.Greater(t, n, 10)
}

var variable = regexp.MustCompile(`/(\{[^}]*\}|a)(/|$)`)

// shape is a path without its query, its variables all alike.
func shape(path string) string {
	path, _, _ = strings.Cut(path, "?")
	for range 2 {
		path = variable.ReplaceAllString(path, "/*$2")
	}
	return path
}

func TestWithoutAGuardNothingIsServed(t *testing.T) {
	w := newWorld(t)
	mux := http.NewServeMux()
	Mount(mux, Alone(w.local), nil, Config{})
	for _, c := range calls {
		r := httptest.NewRequest(c.method, strings.NewReplacer("{topic}", "orders", "{letter}", "1").Replace(c.path), nil)
		answer := httptest.NewRecorder()
		mux.ServeHTTP(answer, r)
		require.Equal(t, 401, answer.Code, c.path)
	}
}

func TestAnswersDoNotRepeatWhatWasSent(t *testing.T) {
	w := newWorld(t)
	long := strings.Repeat("SECRET", 1000)
	for _, body := range []string{
		`{"topic":"orders","delay":"1s","value":{"a":"` + long + `"}}`,
		`{"topic":"orders","delay":"1s","value":7,"key":"` + long + `"}`,
		`{"topic":"orders","delay":"1s","wrong":"` + long + `"}`,
		`{"delay":"1s","value":"` + long + `"}`,
		`["` + long + `"]`,
		`{"topic":"` + long + `","delay":"1s"}`,
		`{"topic":"orders","delay":"` + long + `"}`,
		`{"topic":"orders","delay":"1s","` + long + `":1}`,
		`{"topic":"orders","delay":"1s","value":"` + long,
		`{"topic":"orders","delay":"1s","value_base64":"` + long + `!"}`,
	} {
		code, answer := w.do("POST", "/api/v1/tasks", body)
		require.Contains(t, []int{400, 422}, code)
		require.Less(t, len(answer), 5000, answer)
		require.LessOrEqual(t, strings.Count(answer, "SECRET"), 400, answer)
		var p struct{ Detail string }
		require.NoError(t, json.Unmarshal([]byte(answer), &p))
		require.NotEmpty(t, p.Detail)
	}
	_, answer := w.do("POST", "/api/v1/tasks", `{"delay":"1s","value":"SECRET"}`)
	require.NotContains(t, answer, "SECRET", "a mistake beside the value does not repeat the value")
}
