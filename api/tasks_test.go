package api

import (
	"encoding/json"
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/notyet/notyet/schemas"
	"github.com/notyet/notyet/test/tracingtest"
)

// The trace of a caller over HTTP goes on at the consumer, as that of a caller over Kafka does.
func TestScheduleCarriesTheCallersTrace(t *testing.T) {
	w := newWorld(t)
	parent, other := tracingtest.Traceparent(true), strings.Replace(tracingtest.Traceparent(true), "0af7", "0bf7", 1)
	header := func(key, value string) kgo.RecordHeader { return kgo.RecordHeader{Key: key, Value: []byte(value)} }
	many := make([]string, 126) // with topic and delay as many as a request may have
	for i := range many {
		many[i] = `{"key":"h","value":"1"}`
	}
	for i, c := range []struct {
		name, parent, state, headers string
		want                         []kgo.RecordHeader
	}{
		{"without", "", "", "", nil},
		{"with", parent, "", "", []kgo.RecordHeader{header("traceparent", parent)}},
		{"with a state", parent, "vendor=1", `{"key":"own","value":"1"}`, []kgo.RecordHeader{header("own", "1"), header("traceparent", parent), header("tracestate", "vendor=1")}},
		{"not valid", "00-1-2-3", "vendor=1", "", nil},
		{"the record's own wins", parent, "vendor=1", `{"key":"traceparent","value":"` + other + `"}`, []kgo.RecordHeader{header("traceparent", other)}},
		{"no room for it", parent, "", strings.Join(many, ","), nil},
	} {
		t.Run(c.name, func(t *testing.T) {
			body := fmt.Sprintf(`{"topic":"orders","delay":"1h","headers":[%s]}`, c.headers)
			req, err := http.NewRequestWithContext(t.Context(), http.MethodPost, w.url+"/api/v1/tasks", strings.NewReader(body))
			require.NoError(t, err)
			req.Header.Set("Content-Type", "application/json")
			req.Header.Set("Authorization", "Bearer "+w.tokens["admin"])
			if c.parent != "" {
				req.Header.Set("Traceparent", c.parent)
			}
			if c.state != "" {
				req.Header.Set("Tracestate", c.state)
			}
			resp, err := http.DefaultClient.Do(req)
			require.NoError(t, err)
			require.NoError(t, resp.Body.Close())
			require.Equal(t, http.StatusAccepted, resp.StatusCode)
			got, err := schemas.Decode(w.published(i + 1)[i], schemas.Limits{})
			require.NoError(t, err)
			if c.name == "no room for it" {
				require.Len(t, got.Headers, len(many))
				return
			}
			require.Equal(t, c.want, got.Headers)
		})
	}
}

// An id alone is found in each of the caller's topics, in whatever state, and says nothing of others.
func TestTasksWithAnID(t *testing.T) {
	w := newWorld(t)
	for _, topic := range []string{"orders", "bills", "https://shop.example"} {
		w.schedule(topic, "in.a/3/762", time.Now().Add(time.Hour).UnixMilli(), nil, nil)
	}
	w.schedule("orders", "in.a/3/7621", time.Now().Add(time.Hour).UnixMilli(), nil, nil)
	for token, want := range map[string][]string{"read": {"bills", "https://shop.example", "orders"}, "read of orders": {"orders"}, "admin of bills": {"bills"}} {
		code, text := w.as(token, "GET", "/api/v1/tasks?id=in.a/3/762", "")
		require.Equal(t, 200, code, text)
		var page Tasks
		require.NoError(t, json.Unmarshal([]byte(text), &page))
		var topics []string
		for _, found := range page.Tasks {
			require.Equal(t, "in.a/3/762", found.ID)
			topics = append(topics, found.Topic)
		}
		require.Equal(t, want, topics, token)
		require.Empty(t, page.Cursor)
	}
	for path, code := range map[string]int{"?id=none": 200, "?id=in.a/3/762&topic=orders": 200, "?id=none&topic=orders": 200, "?id=a&tag=b": 422, "?id=a&state=dead": 422, "?id=a&ended=true": 422, "?id=": 422} {
		got, text := w.as("admin", "GET", "/api/v1/tasks"+path, "")
		require.Equal(t, code, got, text)
		require.Equal(t, path == "?id=in.a/3/762&topic=orders", strings.Contains(text, `"state":"pending"`), text)
	}
	code, text := w.as("read of orders", "GET", "/api/v1/tasks?id=in.a/3/762&topic=bills", "")
	require.Equal(t, 403, code, text)
}

// published returns the first n records of the intake.
func (w *world) published(n int) []*kgo.Record {
	w.t.Helper()
	c, err := kgo.NewClient(kgo.SeedBrokers(w.broker), kgo.ConsumeTopics("in.a"), kgo.ConsumeStartOffset(kgo.NewOffset().AtStart()))
	require.NoError(w.t, err)
	defer c.Close()
	var out []*kgo.Record
	for len(out) < n {
		fetches := c.PollFetches(w.t.Context())
		require.NoError(w.t, w.t.Context().Err())
		out = append(out, fetches.Records()...)
	}
	return out
}
