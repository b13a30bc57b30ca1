package api

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/notyet/notyet/deadletter"
	"github.com/notyet/notyet/schemas"
	"github.com/notyet/notyet/store/intake"
	"github.com/notyet/notyet/task"
)

// died keeps a dead letter of a task with key k, value v and the header h.
func (w *world) died(topic, id string) {
	w.t.Helper()
	body := schemas.EncodeBody(nil, []byte("k"), []byte("v"), []kgo.RecordHeader{{Key: "h", Value: []byte("1")}}, schemas.DefaultSettings())
	w.put(task.Change{Rejected: &task.DeadLetter{Kind: schemas.KindDead, Topic: topic, TaskID: id, Reason: "bad", Body: body}})
}

func TestReplayOneLetter(t *testing.T) {
	const v = `{"key":"h","value":"1"}`
	for name, c := range map[string]struct{ body, topic, wants, changed string }{
		"as it is":         {`{}`, "orders", `{"key":"k","value":"v","headers":[` + v + `]}`, ""},
		"without a body":   {``, "orders", `{"key":"k","value":"v","headers":[` + v + `]}`, ""},
		"another value":    {`{"value":"{}"}`, "orders", `{"key":"k","value":"{}","headers":[` + v + `]}`, "value"},
		"an empty value":   {`{"value":""}`, "orders", `{"key":"k","value":"","headers":[` + v + `]}`, "value"},
		"Kafka's nulls":    {`{"key":null,"value":null}`, "orders", `{"key":null,"value":null,"headers":[` + v + `]}`, "key, value"},
		"bytes":            {`{"key_base64":"AP8=","value_base64":"/w=="}`, "orders", `{"key":null,"key_base64":"AP8=","value":null,"value_base64":"/w==","headers":[` + v + `]}`, "key, value"},
		"another topic":    {`{"topic":"bills"}`, "bills", `{"key":"k","value":"v","headers":[` + v + `]}`, "topic"},
		"no headers":       {`{"headers":[]}`, "orders", `{"key":"k","value":"v","headers":[]}`, "headers"},
		"other headers":    {`{"headers":[{"key":"a","value":null},{"key":"a","value":"2"}]}`, "orders", `{"key":"k","value":"v","headers":[{"key":"a","value":null},{"key":"a","value":"2"}]}`, "headers"},
		"everything":       {`{"topic":"bills","key":"x","value":"y","headers":[]}`, "bills", `{"key":"x","value":"y","headers":[]}`, "headers, key, topic, value"},
		"the same, spoken": {`{"topic":"orders","key":"k"}`, "orders", `{"key":"k","value":"v","headers":[` + v + `]}`, "key, topic"},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t)
			w.died("orders", "a")
			code, answer := w.as("operate", "POST", "/api/v1/deadletters/1/replay", c.body)
			require.Equal(t, 200, code, answer)
			var page deadletter.Page
			require.NoError(t, json.Unmarshal([]byte(answer), &page))
			require.Equal(t, []intake.Replayed{{ID: 1, Topic: c.topic, TaskID: "a"}}, page.Letters)
			got, err := w.local.Task(t.Context(), c.topic, "a")
			require.NoError(t, err)
			require.Equal(t, "pending", got.State)
			require.Equal(t, 1, got.Replay)
			content, err := json.Marshal(got.Content)
			require.NoError(t, err)
			require.JSONEq(t, c.wants, string(content))

			log, err := w.local.Audit(t.Context(), AuditFilter{What: "replay"})
			require.NoError(t, err)
			require.Len(t, log.Entries, 1)
			require.Equal(t, "orders", log.Entries[0].Topic)
			var extra struct {
				IDs     []int64
				Changed string
			}
			require.NoError(t, json.Unmarshal(log.Entries[0].Extra, &extra))
			require.Equal(t, []int64{1}, extra.IDs)
			require.Equal(t, c.changed, extra.Changed)

			code, answer = w.as("operate", "POST", "/api/v1/deadletters/1/replay", c.body)
			require.Equal(t, 200, code, answer)
			require.Contains(t, answer, "it has been replayed already")
		})
	}
}

func TestReplayOneIsRefused(t *testing.T) {
	w := newWorld(t)
	w.died("orders", "a")
	w.died("https://shop.example", "b")
	headers := strings.Repeat(`,{"key":"a","value":"1"}`, schemas.MaxHeaders+1)[1:]
	for name, c := range map[string]struct {
		letter, body, says string
	}{
		"a setting":             {"1", `{"headers":[{"key":"Notyet-At","value":"1"}]}`, "headers[0].key"},
		"too many headers":      {"1", `{"headers":[` + headers + `]}`, "headers"},
		"a large key":           {"1", `{"key":"` + strings.Repeat("k", 64<<10+1) + `"}`, "key"},
		"a large value":         {"1", `{"value":"` + strings.Repeat("v", schemas.DefaultMaxValueBytes+1) + `"}`, "value"},
		"an internal topic":     {"1", `{"topic":"in.b"}`, "topic"},
		"Kafka's own":           {"1", `{"topic":"__consumer_offsets"}`, "topic"},
		"no topic's name":       {"1", `{"topic":"or ders"}`, "topic"},
		"an origin":             {"1", `{"topic":"https://shop.example"}`, "schedule a task instead"},
		"of a callback":         {"2", `{"topic":"orders"}`, "schedule a task instead"},
		"a null topic":          {"1", `{"topic":null}`, "topic"},
		"null headers":          {"1", `{"headers":null}`, "headers"},
		"an empty topic":        {"1", `{"topic":""}`, "topic"},
		"two keys":              {"1", `{"key":"a","key_base64":"AP8="}`, "key_base64"},
		"two values, one null":  {"1", `{"value":null,"value_base64":"AP8="}`, "value_base64"},
		"no base64":             {"1", `{"value_base64":"%"}`, "value_base64"},
		"a number":              {"1", `{"value":1}`, "value"},
		"another field":         {"1", `{"id":"b"}`, "id"},
		"of a callback, at all": {"2", `{"headers":[{"key":"notyet-x","value":"1"}]}`, "headers[0].key"},
	} {
		code, answer := w.do("POST", "/api/v1/deadletters/"+c.letter+"/replay", c.body)
		require.Equal(t, 422, code, "%s: %s", name, answer)
		require.Contains(t, answer, c.says, name)
	}
	for _, c := range []struct {
		token, letter, body string
		code                int
	}{
		{"read", "1", `{}`, 403},
		{"operate", "99", `{}`, 404},
		{"operate of bills", "1", `{}`, 404},
		{"operate of bills", "1", `{"topic":"bills"}`, 404},
		{"operate of orders", "1", `{"topic":"bills"}`, 403},
		{"operate of orders", "1", `{"value":"x"}`, 200},
		{"operate", "2", `{"value":"x"}`, 200},
	} {
		code, answer := w.as(c.token, "POST", fmt.Sprintf("/api/v1/deadletters/%s/replay", c.letter), c.body)
		require.Equal(t, c.code, code, answer)
	}
	letter := deadletter.Letter{Topic: "orders"}
	bills := []Intake{{Topic: "in.b", Limits: schemas.Limits{AllowedTargets: []string{"bills"}}}}
	require.ErrorContains(t, (&ReplayEdit{Topic: "carts"}).check(letter, bills), "carts")
	require.NoError(t, (&ReplayEdit{Topic: "bills"}).check(letter, bills))
	require.NoError(t, (&ReplayEdit{KeyBase64: "AP8="}).check(letter, bills), "its own topic")
}
