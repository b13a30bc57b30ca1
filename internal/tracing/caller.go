package tracing

import (
	"context"

	"github.com/twmb/franz-go/pkg/kgo"
	"go.opentelemetry.io/otel/propagation"
	"go.opentelemetry.io/otel/trace"
)

// W3C Trace Context. Kafka's header names are case-sensitive, and these are lower case.
const (
	HeaderTraceparent = "traceparent"
	HeaderTracestate  = "tracestate"
)

const (
	// traceparentLen is the length of a traceparent of version 00; later versions may be longer.
	traceparentLen = 55

	// maxTracestate is the longest tracestate that spans keep, the least length by W3C. Thousands
	// of spans may wait for a collector.
	maxTracestate = 512
)

// Caller is the span of a record's sender. A nil *Caller is not traced; its methods do nothing.
type Caller struct {
	tracer *Tracer
	span   trace.SpanContext
}

// Caller returns the caller in the headers, or nil if it is not traced. Without a sampled
// traceparent the cost is a look at the headers, without an allocation.
func (t *Tracer) Caller(headers []kgo.RecordHeader) *Caller {
	if t == nil {
		return nil
	}
	parent := find(headers, HeaderTraceparent)
	if !sampled(parent) {
		return nil
	}
	span := parse(string(parent), string(find(headers, HeaderTracestate)))
	if !span.IsSampled() {
		return nil
	}
	return &Caller{tracer: t, span: span}
}

func find(headers []kgo.RecordHeader, name string) []byte {
	for i := range headers {
		if headers[i].Key == name {
			return headers[i].Value
		}
	}
	return nil
}

// sampled reports whether the lowest bit of the flags is set: the last hexadecimal digit is odd. It
// does not look at the rest.
func sampled(traceparent []byte) bool {
	if len(traceparent) < traceparentLen {
		return false
	}
	digit := traceparent[traceparentLen-1]
	if digit >= 'a' { // a is ten, and its character's number is odd
		digit++
	}
	return digit&1 == 1
}

// parse returns an invalid context if traceparent is not one.
func parse(traceparent, tracestate string) trace.SpanContext {
	if len(tracestate) > maxTracestate {
		tracestate = ""
	}
	carrier := propagation.MapCarrier{HeaderTraceparent: traceparent, HeaderTracestate: tracestate}
	return trace.SpanContextFromContext(propagation.TraceContext{}.Extract(context.Background(), carrier))
}

// Headers returns the context of an HTTP request as headers of a record, values as they came.
// Without a valid traceparent there are none, and no tracestate longer than spans keep.
func Headers(traceparent, tracestate string) []kgo.RecordHeader {
	if !parse(traceparent, "").IsValid() {
		return nil
	}
	out := []kgo.RecordHeader{{Key: HeaderTraceparent, Value: []byte(traceparent)}}
	if tracestate != "" && len(tracestate) <= maxTracestate {
		out = append(out, kgo.RecordHeader{Key: HeaderTracestate, Value: []byte(tracestate)})
	}
	return out
}
