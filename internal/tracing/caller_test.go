package tracing_test

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/notyet/notyet/internal/tracing"
	"github.com/notyet/notyet/test/tracingtest"
)

func TestWhoIsTraced(t *testing.T) {
	r := tracingtest.Record()
	defer r.End()
	const ids = "0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331"
	for value, traced := range map[string]bool{
		"00-" + ids + "-01":         true,
		"00-" + ids + "-03":         true,
		"01-" + ids + "-09-more":    true, // of a later version
		"00-" + ids + "-00":         false,
		"00-" + ids + "-02":         false,
		"cc-" + ids + "-0a":         false,
		"cc-" + ids + "-0b":         true,
		"00-" + ids + "-01-more":    false,
		"ff-" + ids + "-01":         false,
		"00-" + ids + "-0g":         false,
		"00-" + ids:                 false,
		"":                          false,
		"00-" + ids + "-0A":         false,
		strings.Repeat("1", 55):     false,
		strings.Repeat("0", 64<<10): false,
		"00-00000000000000000000000000000000-b7ad6b7169203331-01": false,
		"00-0af7651916cd43dd8448eb211c80319c-0000000000000000-01": false,
	} {
		caller := r.Caller([]kgo.RecordHeader{{Key: "traceparent", Value: []byte(value)}})
		require.Equal(t, traced, caller != nil, "%.80q", value)
	}
	require.Nil(t, r.Caller(nil))
	require.Nil(t, r.Caller([]kgo.RecordHeader{{Key: "Traceparent", Value: []byte(tracingtest.Traceparent(true))}}), "Kafka's names are case-sensitive")
}

// Whoever is not traced costs a look at the headers, whether traces are on or off.
func TestWhoIsNotTracedCostsNoAllocation(t *testing.T) {
	on := tracingtest.Record()
	defer on.End()
	traced, untraced := parent(true), parent(false)
	for name, c := range map[string]struct {
		tracer  *tracing.Tracer
		headers []kgo.RecordHeader
	}{
		"off":       {nil, traced},
		"unsampled": {on.Tracer, untraced},
		"none":      {on.Tracer, traced[:1]},
	} {
		t.Run(name, func(t *testing.T) {
			require.Zero(t, testing.AllocsPerRun(100, func() {
				caller := c.tracer.Caller(c.headers)
				caller.Stored(tracing.Stored{Topic: "notyet.intake"})
				caller.Sent(tracing.Delivery{Target: "orders"}, 1, 2)
				caller.Called(tracing.Delivery{}, "POST", 200)
			}))
		})
	}
}

func BenchmarkUntraced(b *testing.B) {
	on := tracingtest.Record()
	defer on.End()
	for name, tracer := range map[string]*tracing.Tracer{"off": nil, "on": on.Tracer} {
		b.Run(name, func(b *testing.B) {
			headers := parent(false)
			b.ReportAllocs()
			for b.Loop() {
				tracer.Caller(headers).Stored(tracing.Stored{})
			}
		})
	}
}

func TestALongTracestateIsNotKept(t *testing.T) {
	long := "a=" + strings.Repeat("x", 250) + ",b=" + strings.Repeat("x", 250) + ",c=" + strings.Repeat("x", 250)
	for state, want := range map[string]string{"vendor=1": "vendor=1", long: "", "!": ""} {
		r := tracingtest.Record()
		r.Caller(append(parent(true), kgo.RecordHeader{Key: "tracestate", Value: []byte(state)})).Stored(tracing.Stored{})
		got := r.End()
		require.Len(t, got, 1)
		require.Equal(t, want, got[0].State)
	}
}

func TestHeadersOfAnHTTPRequest(t *testing.T) {
	header := func(key, value string) kgo.RecordHeader { return kgo.RecordHeader{Key: key, Value: []byte(value)} }
	valid := tracingtest.Traceparent(false)
	for name, c := range map[string]struct {
		parent, state string
		want          []kgo.RecordHeader
	}{
		"none":              {"", "vendor=1", nil},
		"as it came":        {valid, "", []kgo.RecordHeader{header("traceparent", valid)}},
		"with its state":    {valid, "vendor=1", []kgo.RecordHeader{header("traceparent", valid), header("tracestate", "vendor=1")}},
		"a state too long":  {valid, strings.Repeat("x", 513), []kgo.RecordHeader{header("traceparent", valid)}},
		"not a traceparent": {"00-1-2-01", "", nil},
	} {
		t.Run(name, func(t *testing.T) {
			require.Equal(t, c.want, tracing.Headers(c.parent, c.state))
		})
	}
}
