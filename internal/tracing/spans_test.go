package tracing_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/notyet/notyet/internal/tracing"
	"github.com/notyet/notyet/test/tracingtest"
)

var start = time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)

func TestStoredIsAChildOfTheCaller(t *testing.T) {
	r := tracingtest.Record()
	stored := tracing.Stored{
		Topic: "notyet.intake", Partition: 3, Offset: 7, Read: start, Stored: start.Add(time.Second),
		Op: "schedule", Target: "orders", ID: "a", Due: 9, Group: "scanners", Tombstone: true,
	}
	r.Caller(parent(true)).Stored(stored)
	stored.Rejected = true
	r.Caller(parent(true)).Stored(stored)
	got := r.End()
	require.Len(t, got, 2)
	s := got[0]
	require.Equal(t, tracingtest.Link, s.Trace+"-"+s.Parent)
	require.Equal(t, "store notyet.intake", s.Name)
	require.Equal(t, "consumer", s.Kind)
	require.Equal(t, start, s.Start)
	require.Equal(t, start.Add(time.Second), s.End)
	require.Equal(t, map[string]any{
		"messaging.system": "kafka", "messaging.destination.name": "notyet.intake", "messaging.destination.partition.id": "3", "messaging.kafka.offset": int64(7),
		"messaging.operation.type": "process", "messaging.operation.name": "store", "notyet.op": "schedule", "notyet.topic": "orders", "notyet.id": "a", "notyet.due": int64(9),
		"messaging.consumer.group.name": "scanners", "messaging.kafka.message.tombstone": true,
	}, s.Attributes)
	require.False(t, s.Failed)
	require.True(t, got[1].Failed)
	require.Equal(t, "rejected", got[1].Attributes["error.type"])
}

func delivery() tracing.Delivery {
	return tracing.Delivery{
		Target: "orders", ID: "a", Key: "key", Due: 5, Lateness: 4, Attempt: 2, Replay: 1,
		Fetched: start, Sent: start.Add(time.Second), Answered: start.Add(2 * time.Second),
	}
}

func TestADeliveryIsATraceOfItsOwn(t *testing.T) {
	r := tracingtest.Record()
	traced := append(parent(true), kgo.RecordHeader{Key: "tracestate", Value: []byte("vendor=1")})
	null := delivery()
	null.Tombstone = true
	r.Caller(traced).Sent(null, 3, 7)
	got := r.End()
	require.Len(t, got, 3)
	wait, send, root := got[0], got[1], got[2]
	require.Equal(t, "deliver orders", root.Name)
	require.Empty(t, root.Parent)
	require.Equal(t, []string{tracingtest.Link + " vendor=1"}, root.Links)
	require.NotContains(t, tracingtest.Link, root.Trace)
	require.Equal(t, map[string]any{
		"notyet.topic": "orders", "notyet.id": "a", "notyet.due": int64(5), "notyet.attempt": int64(2), "notyet.delivery": "key", "notyet.replay": int64(1), "notyet.lateness_ms": int64(4),
	}, root.Attributes)
	for _, child := range []tracingtest.Span{wait, send} {
		require.Equal(t, root.Trace, child.Trace)
		require.Equal(t, root.ID, child.Parent)
	}
	require.Equal(t, []string{"wait", "send orders", "producer"}, []string{wait.Name, send.Name, send.Kind})
	require.Equal(t, []time.Time{start, start.Add(time.Second), start.Add(time.Second), start.Add(2 * time.Second)}, []time.Time{wait.Start, wait.End, send.Start, send.End})
	require.Equal(t, []time.Time{start, start.Add(2 * time.Second)}, []time.Time{root.Start, root.End})
	require.Equal(t, map[string]any{
		"messaging.system": "kafka", "messaging.destination.name": "orders", "messaging.destination.partition.id": "3", "messaging.kafka.offset": int64(7),
		"messaging.operation.type": "send", "messaging.operation.name": "send", "messaging.kafka.message.tombstone": true,
	}, send.Attributes)
}

func TestAFailedDeliverySaysSo(t *testing.T) {
	r := tracingtest.Record()
	d := delivery()
	d.Failure = "MESSAGE_TOO_LARGE"
	r.Caller(parent(true)).Sent(d, -1, -1)
	got := r.End()
	require.Len(t, got, 3)
	require.False(t, got[0].Failed, "that it waited was no fault")
	for _, s := range got[1:] {
		require.True(t, s.Failed)
		require.Equal(t, "MESSAGE_TOO_LARGE", s.Attributes["error.type"])
		require.NotContains(t, s.Attributes, "messaging.kafka.offset")
		require.NotContains(t, s.Attributes, "notyet.lateness_ms")
	}
}

func TestACallbackIsAnHTTPSpan(t *testing.T) {
	for target, port := range map[string]int64{"https://shop.example": 443, "http://shop.example": 80, "https://shop.example:8443": 8443} {
		r := tracingtest.Record()
		d := delivery()
		d.Target, d.Failure = target, "503"
		r.Caller(parent(true)).Called(d, "PUT", 503)
		got := r.End()
		require.Len(t, got, 3)
		call := got[1]
		require.Equal(t, []string{"PUT", "client"}, []string{call.Name, call.Kind})
		require.Equal(t, map[string]any{
			"url.scheme": strings.Split(target, ":")[0], "server.address": "shop.example", "server.port": port,
			"http.request.method": "PUT", "http.response.status_code": int64(503), "http.request.resend_count": int64(1), "error.type": "503",
		}, call.Attributes)
	}
}

func TestFailure(t *testing.T) {
	require.Empty(t, tracing.Failure(nil))
	require.Equal(t, "MESSAGE_TOO_LARGE", tracing.Failure(fmt.Errorf("producing: %w", kerr.MessageTooLarge)))
	require.Equal(t, "timeout", tracing.Failure(fmt.Errorf("producing: %w", context.DeadlineExceeded)))
	require.Equal(t, "_OTHER", tracing.Failure(errors.New("what nobody knows")))
}
