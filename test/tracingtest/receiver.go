// Package tracingtest has what tests of traces need: a collector, programs that are traced beside
// notyet, and exporters that do not answer.
package tracingtest

import (
	"compress/gzip"
	"context"
	"encoding/hex"
	"io"
	"net/http"
	"net/http/httptest"
	"slices"
	"sync"
	"testing"
	"time"

	"go.opentelemetry.io/otel/exporters/otlp/otlptrace/otlptracehttp"
	"go.opentelemetry.io/otel/propagation"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/trace"
	collector "go.opentelemetry.io/proto/otlp/collector/trace/v1"
	common "go.opentelemetry.io/proto/otlp/common/v1"
	spans "go.opentelemetry.io/proto/otlp/trace/v1"
	"google.golang.org/protobuf/proto"

	"github.com/notyet/notyet/internal/tracing"
)

// Span is a span as a collector gets it, with its ids in hexadecimal.
type Span struct {
	Service, Name, Kind      string
	Trace, ID, Parent, State string
	Links                    []string // "trace-span"
	Start, End               time.Time
	Attributes               map[string]any
	Failed                   bool
}

// Receiver is a collector that speaks OTLP over HTTP.
type Receiver struct {
	URL string

	mu   sync.Mutex
	seen []Span
}

// NewReceiver starts one on a loopback address.
func NewReceiver(t testing.TB) *Receiver {
	r := &Receiver{}
	s := httptest.NewServer(http.HandlerFunc(r.receive))
	t.Cleanup(s.Close)
	r.URL = s.URL
	return r
}

func (r *Receiver) receive(w http.ResponseWriter, q *http.Request) {
	var in io.Reader = q.Body
	if q.Header.Get("Content-Encoding") == "gzip" {
		in, _ = gzip.NewReader(q.Body)
	}
	b, err := io.ReadAll(in)
	var request collector.ExportTraceServiceRequest
	if err != nil || q.URL.Path != "/v1/traces" || proto.Unmarshal(b, &request) != nil {
		http.Error(w, "not an export of traces", http.StatusBadRequest)
		return
	}
	r.Add(&request)
}

// Add takes spans that came in another way.
func (r *Receiver) Add(request *collector.ExportTraceServiceRequest) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, of := range request.GetResourceSpans() {
		service, _ := values(of.GetResource().GetAttributes())["service.name"].(string)
		for _, scope := range of.GetScopeSpans() {
			for _, s := range scope.GetSpans() {
				r.seen = append(r.seen, newSpan(service, s))
			}
		}
	}
}

func newSpan(service string, s *spans.Span) Span {
	out := Span{
		Service: service, Name: s.GetName(), Kind: s.GetKind().String(), Trace: hex.EncodeToString(s.GetTraceId()), ID: hex.EncodeToString(s.GetSpanId()),
		Parent: hex.EncodeToString(s.GetParentSpanId()), State: s.GetTraceState(), Start: time.Unix(0, int64(s.GetStartTimeUnixNano())), End: time.Unix(0, int64(s.GetEndTimeUnixNano())),
		Attributes: values(s.GetAttributes()), Failed: s.GetStatus().GetCode() == spans.Status_STATUS_CODE_ERROR,
	}
	for _, l := range s.GetLinks() {
		out.Links = append(out.Links, hex.EncodeToString(l.GetTraceId())+"-"+hex.EncodeToString(l.GetSpanId()))
	}
	return out
}

func values(attributes []*common.KeyValue) map[string]any {
	out := map[string]any{}
	for _, a := range attributes {
		switch v := a.GetValue().GetValue().(type) {
		case *common.AnyValue_StringValue:
			out[a.GetKey()] = v.StringValue
		case *common.AnyValue_IntValue:
			out[a.GetKey()] = v.IntValue
		}
	}
	return out
}

// Spans returns what has come, in the order of coming.
func (r *Receiver) Spans() []Span {
	r.mu.Lock()
	defer r.mu.Unlock()
	return slices.Clone(r.seen)
}

// Find returns the first span of the name that the condition holds for.
func (r *Receiver) Find(name string, is func(Span) bool) (Span, bool) {
	for _, s := range r.Spans() {
		if s.Name == name && is(s) {
			return s, true
		}
	}
	return Span{}, false
}

// Program is a traced program beside notyet: a caller, or a consumer.
type Program struct{ provider *sdktrace.TracerProvider }

// Program starts one that exports to the receiver as soon as a span ends.
func (r *Receiver) Program(t testing.TB) *Program {
	exporter, err := otlptracehttp.New(context.Background(), otlptracehttp.WithEndpointURL(r.URL+"/v1/traces"))
	if err != nil {
		t.Fatal(err)
	}
	p := &Program{sdktrace.NewTracerProvider(sdktrace.WithSyncer(exporter))}
	t.Cleanup(func() { _ = p.provider.Shutdown(context.Background()) })
	return p
}

// Span makes a span under the parent, "" for a new trace, and returns its traceparent.
func (p *Program) Span(name, parent string) (traceparent string) {
	ctx := propagation.TraceContext{}.Extract(context.Background(), propagation.MapCarrier{tracing.HeaderTraceparent: parent})
	ctx, span := p.provider.Tracer("program").Start(ctx, name, trace.WithSpanKind(trace.SpanKindProducer))
	defer span.End()
	out := propagation.MapCarrier{}
	propagation.TraceContext{}.Inject(ctx, out)
	return out.Get(tracing.HeaderTraceparent)
}
