package tracingtest

import (
	"context"
	"sync/atomic"

	"go.opentelemetry.io/otel/attribute"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/sdk/trace/tracetest"
	"go.opentelemetry.io/otel/trace"

	"github.com/notyet/notyet/internal/tracing"
)

// Recorder keeps what a Tracer exports, in memory.
type Recorder struct {
	*tracing.Tracer
	exporter *tracetest.InMemoryExporter
}

// Record returns a Tracer whose spans are kept.
func Record() *Recorder {
	e := &keeping{tracetest.NewInMemoryExporter()}
	return &Recorder{tracing.New(e, "test"), e.InMemoryExporter}
}

// keeping does not forget its spans at a shutdown.
type keeping struct{ *tracetest.InMemoryExporter }

func (*keeping) Shutdown(context.Context) error { return nil }

// End stops the Tracer and returns its spans, in the order in which they ended.
func (r *Recorder) End() []Span {
	r.Stop()
	var out []Span
	for _, s := range r.exporter.GetSpans() {
		one := Span{
			Name: s.Name, Kind: s.SpanKind.String(), Trace: s.SpanContext.TraceID().String(), ID: s.SpanContext.SpanID().String(), State: s.SpanContext.TraceState().String(),
			Start: s.StartTime, End: s.EndTime, Attributes: plain(s.Attributes), Failed: s.Status.Code != 0,
		}
		if s.Parent.HasSpanID() {
			one.Parent = s.Parent.SpanID().String()
		}
		for _, l := range s.Links {
			link := l.SpanContext.TraceID().String() + "-" + l.SpanContext.SpanID().String()
			for _, a := range l.Attributes {
				link += " " + a.Value.AsString()
			}
			one.Links = append(one.Links, link)
		}
		out = append(out, one)
	}
	return out
}

func plain(attributes []attribute.KeyValue) map[string]any {
	out := map[string]any{}
	for _, a := range attributes {
		out[string(a.Key)] = a.Value.AsInterface()
	}
	return out
}

// Hanging is a collector that takes nothing and never answers: a Tracer's exports block until they
// are given up.
type Hanging struct {
	*tracing.Tracer
	exports atomic.Int64
}

// Hang returns a Tracer over one.
func Hang() *Hanging {
	h := &Hanging{}
	h.Tracer = tracing.New(hanging{h}, "test")
	return h
}

// Exports returns how many exports were begun.
func (h *Hanging) Exports() int64 { return h.exports.Load() }

type hanging struct{ of *Hanging }

func (h hanging) ExportSpans(ctx context.Context, _ []sdktrace.ReadOnlySpan) error {
	h.of.exports.Add(1)
	<-ctx.Done()
	return ctx.Err()
}

func (hanging) Shutdown(context.Context) error { return nil }

// Traceparent returns one of a sampled or an unsampled span, always the same.
func Traceparent(sampled bool) string {
	flags := trace.TraceFlags(0).WithSampled(sampled)
	return "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-" + flags.String()
}

// Link is how Span.Links has the span of Traceparent.
const Link = "0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331"
