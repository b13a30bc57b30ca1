package main

import (
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/notyet/notyet/internal/command"
	"github.com/notyet/notyet/test/recordtest"
	"github.com/notyet/notyet/test/tracingtest"
)

// A trace from a caller, through the delay, to a consumer, as a collector sees it.
func TestATraceGoesFromTheCallerToTheConsumer(t *testing.T) {
	receiver := tracingtest.NewReceiver(t)
	t.Setenv("OTEL_SDK_DISABLED", "")
	t.Setenv("OTEL_TRACES_EXPORTER", "")
	t.Setenv("OTEL_TRACES_SAMPLER", "")
	t.Setenv("OTEL_SERVICE_NAME", "")
	t.Setenv("OTEL_RESOURCE_ATTRIBUTES", "")
	t.Setenv("OTEL_EXPORTER_OTLP_ENDPOINT", receiver.URL)
	d := startDev(t)
	program := receiver.Program(t)

	published := program.Span("publish", "")
	require.NoError(t, client(t, d.kafka).ProduceSync(t.Context(), &kgo.Record{Topic: "notyet.intake", Value: []byte("v"), Headers: []kgo.RecordHeader{
		{Key: "notyet-topic", Value: []byte("orders")}, {Key: "notyet-id", Value: []byte("a")}, {Key: "notyet-delay", Value: []byte("300ms")}, {Key: "traceparent", Value: []byte(published)},
	}}).FirstErr())
	r := first(t, d.kafka, "orders")
	require.Equal(t, published, recordtest.Header(r, "traceparent"), "what is delivered carries what the caller gave")
	consumed := program.Span("consume", recordtest.Header(r, "traceparent"))

	called := make(chan string, 1)
	web := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, q *http.Request) { called <- q.Header.Get("Traceparent") }))
	t.Cleanup(web.Close)
	asked := program.Span("ask over HTTP", "")
	req, err := http.NewRequestWithContext(t.Context(), http.MethodPost, "http://"+d.http+"/api/v1/tasks", strings.NewReader(`{"url":"`+web.URL+`/hook","id":"b","delay":"10ms","value":"v"}`))
	require.NoError(t, err)
	req.Header.Set("Content-Type", "application/json")
	req.Header.Set("Traceparent", asked)
	resp, err := http.DefaultClient.Do(req)
	require.NoError(t, err)
	require.NoError(t, resp.Body.Close())
	require.Equal(t, http.StatusAccepted, resp.StatusCode)
	select {
	case got := <-called:
		require.Equal(t, asked, got)
	case <-time.After(time.Minute):
		require.Fail(t, "the callback did not come")
	}
	require.Eventually(t, func() bool { // its answer is seen by now
		r := d.cmd(t, "get", "-t", web.URL, "--id", "b", "--json")
		return strings.Contains(r.stdout, `"delivered"`)
	}, time.Minute, 10*time.Millisecond)
	require.Equal(t, command.ExitDone, d.stop(), "a stop exports what is left")

	for id, c := range map[string]struct{ parent, target, request string }{"a": {published, "orders", "send orders"}, "b": {asked, web.URL, "POST"}} {
		ids := strings.Split(c.parent, "-")
		is := func(s tracingtest.Span) bool { return s.Service == "notyet" && s.Attributes["notyet.id"] == id }
		stored, ok := receiver.Find("store notyet.intake", is)
		require.True(t, ok, "the intake of %s", id)
		require.Equal(t, ids[1:3], []string{stored.Trace, stored.Parent}, "a child of the caller's span")
		delivery, ok := receiver.Find("deliver "+c.target, is)
		require.True(t, ok, "the delivery of %s", id)
		require.NotEqual(t, ids[1], delivery.Trace)
		require.Equal(t, []string{ids[1] + "-" + ids[2]}, delivery.Links, "linked to the caller, across the delay")
		_, ok = receiver.Find(c.request, func(s tracingtest.Span) bool { return s.Trace == delivery.Trace && s.Parent == delivery.ID })
		require.True(t, ok, "the request of %s", id)
		require.False(t, delivery.End.Before(stored.End))
	}
	last, ok := receiver.Find("consume", func(s tracingtest.Span) bool { return strings.Contains(consumed, s.ID) })
	require.True(t, ok)
	require.Equal(t, strings.Split(published, "-")[1:3], []string{last.Trace, last.Parent}, "the consumer goes on with the caller's trace")
}
