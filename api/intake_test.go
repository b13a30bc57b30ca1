package api

import (
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kgo"
	"go.uber.org/zap"
	"go.yaml.in/yaml/v3"

	"github.com/notyet/notyet/internal/access"
	"github.com/notyet/notyet/schemas"
)

// Requests about one target go through the intake that is for it, in whatever way they name it. A request that
// names that intake need not name the target.
func TestRequestsGoToTheIntakeOfTheirTarget(t *testing.T) {
	w := newWorld(t)
	for _, c := range []struct{ method, path, body, intake string }{
		{"POST", "/api/v1/tasks", `{"topic":"orders","id":"x","delay":"1h"}`, "in.a"},
		{"POST", "/api/v1/tasks", `{"topic":"carts","id":"x","delay":"1h"}`, "in.c"},
		{"POST", "/api/v1/tasks", `{"intake":"in.c","id":"x","delay":"1h"}`, "in.c"},
		{"POST", "/api/v1/tasks", `{"intake":"in.a","topic":"carts","id":"x","delay":"1h"}`, "in.a"},
		{"POST", "/api/v1/tasks/cancel", `{"intake":"in.c","id":"x"}`, "in.c"},
		{"POST", "/api/v1/tasks/carts/x/fire", "", "in.c"},
		{"POST", "/api/v1/tasks/orders/x/cancel", "", "in.a"},
		{"PUT", "/api/v1/timers/carts/x", `{"every":"1h"}`, "in.c"},
		{"DELETE", "/api/v1/timers/carts/x", "", "in.c"},
	} {
		code, answer := w.do(c.method, c.path, c.body)
		require.Equal(t, http.StatusAccepted, code, "%v: %s", c, answer)
		var got Published
		require.NoError(t, json.Unmarshal([]byte(answer), &got))
		require.Equal(t, c.intake, got.Intake, "%v", c)
		records := w.records(got.Intake, int(got.Offset)+1)
		require.Contains(t, records[got.Offset].Headers, kgo.RecordHeader{Key: schemas.HeaderTopic, Value: []byte(got.Topic)}, "%v: the record names its target", c)
	}
}

func TestAnotherTargetIsRefused(t *testing.T) {
	w := newWorld(t)
	for _, c := range []struct{ body, want string }{
		{`{"intake":"in.c","topic":"orders","delay":"1h"}`, "is not the target of this intake topic: leave it out, write carts"},
		{`{"intake":"in.c","url":"https://a.example/x","delay":"1h"}`, "is not the target of this intake topic"},
		{`{"delay":"1h"}`, "is missing"},
		{`{"intake":"carts","delay":"1h"}`, "is not an intake topic"},
	} {
		code, answer := w.do("POST", "/api/v1/tasks", c.body)
		require.Equal(t, http.StatusUnprocessableEntity, code, answer)
		require.Contains(t, answer, c.want)
	}
	code, _ := w.as("operate of orders", "POST", "/api/v1/tasks", `{"intake":"in.c","delay":"1h"}`)
	require.Equal(t, http.StatusForbidden, code, "a target that is left out is not the caller's")
}

// A token whose entry names an intake sends through that intake alone. A request beyond requests-per-second is
// neither in Kafka nor in the audit log.
func TestATokensIntake(t *testing.T) {
	w := newWorld(t)
	named, entry := access.NewToken("named", access.Operate, []string{"orders", "bills", "https://*.example"})
	slow, other := access.NewToken("slow", access.Operate, access.Everything)
	entry.Intake, other.RequestsPerSecond = "in.b", new(1)
	text, err := yaml.Marshal([]access.Entry{entry, other})
	require.NoError(t, err)
	file := filepath.Join(t.TempDir(), "tokens.yaml")
	require.NoError(t, os.WriteFile(file, text, 0o600))
	guard, err := access.New(access.Config{Tokens: file, Intakes: []string{"in.a", "in.b"}}, zap.NewNop())
	require.NoError(t, err)
	server := httptest.NewServer(guard.Handler(w.mux))
	defer server.Close()
	w.url, w.tokens["named"], w.tokens["slow"] = server.URL, named, slow
	const another = "sends its requests through another intake"
	for _, c := range []struct {
		path, body, want string
		code             int
	}{
		{"/tasks", `{"topic":"bills","delay":"1h"}`, `"in.b"`, http.StatusAccepted},
		{"/tasks", `{"topic":"bills","delay":"1h","intake":"in.b"}`, `"in.b"`, http.StatusAccepted},
		{"/tasks", `{"topic":"orders","delay":"1h"}`, "allowed", http.StatusUnprocessableEntity},
		{"/tasks", `{"url":"https://a.example/x","delay":"1h"}`, "allowed", http.StatusUnprocessableEntity},
		{"/tasks", `{"topic":"bills","delay":"1h","intake":"in.a"}`, another, http.StatusForbidden},
		{"/tasks", `{"url":"https://a.example/x","delay":"1h","intake":"in.a"}`, another, http.StatusForbidden},
		{"/tasks/cancel", `{"topic":"orders","id":"x","intake":"in.a"}`, another, http.StatusForbidden},
		{"/tasks/orders/x/stop?intake=in.a", "", another, http.StatusForbidden},
	} {
		code, answer := w.as("named", "POST", "/api/v1"+c.path, c.body)
		require.Equal(t, c.code, code, "%v: %s", c, answer)
		require.Contains(t, answer, c.want)
	}
	w.audited()
	for _, want := range []int{http.StatusAccepted, http.StatusTooManyRequests} {
		code, answer := w.as("slow", "POST", "/api/v1/tasks", `{"topic":"bills","delay":"1h"}`)
		require.Equal(t, want, code, answer)
	}
	require.Len(t, w.audited(), 1)
}

func TestPick(t *testing.T) {
	own := func(topic, target string) Intake { return Intake{Topic: topic, Limits: schemas.Limits{Target: target}} }
	all := []Intake{own("o", "orders"), own("a", ""), own("b", "")}
	for _, c := range []struct {
		from              []Intake
		name, topic, want string
	}{
		{all, "", "orders", "o"},
		{all, "", "bills", "a"},
		{all, "", "", "a"},
		{all, "b", "orders", "b"},
		{all, "c", "orders", ""},
		{all[:1], "", "bills", "o"},
		{all[:1], "", "", "o"},
		{nil, "", "", ""},
	} {
		in, ok := Pick(c.from, c.name, c.topic)
		require.Equal(t, c.want, in.Topic, "%v", c)
		require.Equal(t, c.want != "", ok)
	}
}
