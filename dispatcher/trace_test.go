package dispatcher

import (
	"net/http"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kerr"

	"github.com/notyet/notyet/callback"
	"github.com/notyet/notyet/schemas"
	"github.com/notyet/notyet/test/recordtest"
	"github.com/notyet/notyet/test/tracingtest"
)

// roots are the spans of deliveries, by task id; children are the others, by the root's id.
func roots(t *testing.T, spans []tracingtest.Span) (roots map[string][]tracingtest.Span, children map[string][]tracingtest.Span) {
	t.Helper()
	roots, children = map[string][]tracingtest.Span{}, map[string][]tracingtest.Span{}
	for _, s := range spans {
		if s.Parent != "" {
			children[s.Parent] = append(children[s.Parent], s)
			continue
		}
		require.Len(t, s.Links, 1)
		link, _, _ := strings.Cut(s.Links[0], " ") // a caller's tracestate follows
		require.Equal(t, tracingtest.Link, link)
		id, _ := s.Attributes["notyet.id"].(string)
		roots[id] = append(roots[id], s)
	}
	return roots, children
}

func TestDeliveriesAreTracedForWhoIsTraced(t *testing.T) {
	f := newFixture(t, 2, "orders")
	recorder := tracingtest.Record()
	f.tracer = recorder.Tracer
	var asked atomic.Int32
	web := f.receive(func(w http.ResponseWriter, _ *http.Request) {
		if asked.Add(1) == 1 {
			w.WriteHeader(http.StatusServiceUnavailable)
		}
	})
	f.callsTo(callback.Config{})
	orders := f.read("orders")
	d := f.start(f.elect(5), t.TempDir(), Config{MemberID: "one"})
	due := time.Now().Add(200 * time.Millisecond)
	f.schedule(
		ask("orders", "traced", due, "traceparent", tracingtest.Traceparent(true), "tracestate", "vendor=1"), ask("orders", "unsampled", due, "traceparent", tracingtest.Traceparent(false)),
		ask("orders", "untraced", due), call(web.URL+"/secret?token=x", "called", due, "traceparent", tracingtest.Traceparent(true), schemas.HeaderBackoff, "fixed:1ms"),
	)
	f.eventually("all are delivered", func() bool { return orders.count() == 3 && web.count() == 2 })
	require.NoError(t, d.end())
	for _, r := range orders.all() {
		if recordtest.Header(r, schemas.HeaderID) == "traced" {
			require.Equal(t, tracingtest.Traceparent(true), recordtest.Header(r, "traceparent"), "the consumer continues the caller's trace")
			require.Equal(t, "vendor=1", recordtest.Header(r, "tracestate"))
		}
	}
	require.Equal(t, tracingtest.Traceparent(true), web.all()[0].header.Get("Traceparent"))

	all, children := roots(t, recorder.End())
	require.Len(t, all, 2)
	require.Len(t, all["traced"], 1)
	root := all["traced"][0]
	require.Equal(t, "deliver orders", root.Name)
	require.Equal(t, []string{tracingtest.Link + " vendor=1"}, root.Links)
	require.Equal(t, f.source.DeliveryKey(f.source.Next-4, 1), root.Attributes["notyet.delivery"])
	require.GreaterOrEqual(t, root.Attributes["notyet.lateness_ms"], int64(0))
	require.Len(t, children[root.ID], 2)
	send := children[root.ID][1]
	require.Equal(t, "send orders", send.Name)
	require.False(t, send.Start.Before(due.Truncate(time.Millisecond)), "never early")
	require.Equal(t, "0", send.Attributes["messaging.destination.partition.id"])

	require.Len(t, all["called"], 2, "an attempt each")
	for i, c := range []struct {
		status, attempt int64
		failed          bool
	}{{503, 1, true}, {200, 2, false}} {
		one := all["called"][i]
		request := children[one.ID][1]
		require.Equal(t, c.attempt, one.Attributes["notyet.attempt"])
		require.Equal(t, c.failed, one.Failed)
		require.Equal(t, "POST", request.Name)
		require.Equal(t, c.status, request.Attributes["http.response.status_code"])
		require.NotContains(t, request.Attributes, "url.full", "it may hold a secret")
	}
}

func TestARefusedDeliveryShowsInItsTrace(t *testing.T) {
	f := newFixture(t, 1, "orders")
	recorder := tracingtest.Record()
	f.tracer = recorder.Tracer
	events := f.read(results)
	d := f.start(f.elect(5), t.TempDir(), Config{MemberID: "one", UndeliverableAfter: -1})
	f.schedule(ask("missing", "one", time.Now(), "traceparent", tracingtest.Traceparent(true), schemas.HeaderEvents, "final"))
	f.eventually("it is dead", func() bool { return len(events.events(t, schemas.StateDead)["one"]) == 1 })
	require.NoError(t, d.end())
	all, _ := roots(t, recorder.End())
	require.NotEmpty(t, all["one"])
	last := all["one"][len(all["one"])-1]
	require.True(t, last.Failed)
	require.Equal(t, kerr.UnknownTopicOrPartition.Message, last.Attributes["error.type"])
}

// A collector that takes nothing delays no delivery, and no stop. There are more spans than it is given room for.
func TestADeadCollectorDelaysNoDelivery(t *testing.T) {
	const tasks = 2000
	f := newFixture(t, 2, "orders")
	dead := tracingtest.Hang()
	f.tracer = dead.Tracer
	orders := f.read("orders")
	d := f.start(f.elect(5), t.TempDir(), Config{MemberID: "one"})
	f.schedule(askMany(tasks, "orders", "t", time.Now(), "traceparent", tracingtest.Traceparent(true))...)
	f.eventually("all are delivered", func() bool { return orders.count() == tasks })
	f.eventually("the collector was asked", func() bool { return dead.Exports() > 0 })
	require.NoError(t, d.end())
}
