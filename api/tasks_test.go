package api

import (
	"fmt"
	"net/http"
	"strings"
	"testing"

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
