// Package tracing makes OpenTelemetry spans of the tasks of traced callers, and exports the spans:
// the headers of a record and its outcome go in, spans at an OTLP collector come out.
//
// A caller is traced when the record carries a W3C traceparent with a set sampled flag. Storing the
// record is a child of the caller's span. A delivery is a trace of its own with a link to the
// caller's span, because it may come months later. The caller's headers are only read: deliveries
// carry them unchanged.
//
// Spans are made afterwards, from noted instants. So no span is open while a task waits, and
// nothing is left over when a task is abandoned.
package tracing

import (
	"context"
	"time"

	"go.opentelemetry.io/otel"
	"go.opentelemetry.io/otel/sdk/resource"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	semconv "go.opentelemetry.io/otel/semconv/v1.43.0"
	"go.opentelemetry.io/otel/trace"
	"go.uber.org/zap"
)

// Tracer makes spans. Safe for concurrent use. A nil *Tracer is off: it finds no caller, and
// allocates nothing.
type Tracer struct {
	provider *sdktrace.TracerProvider
	spans    trace.Tracer
}

// Start returns a Tracer as asked for by the OTEL_* variables, or nil. Mistakes there are logged,
// and do not keep a service from starting: tasks matter more than traces.
func Start(ctx context.Context, version string, log *zap.Logger) *Tracer {
	if !wanted() {
		return nil
	}
	otel.SetErrorHandler(newErrorLog(log))
	otel.SetLogger(newLogger(log))
	exporter, err := newExporter(ctx)
	if err != nil {
		log.Error("no traces are exported", zap.Error(err))
		return nil
	}
	log.Info("exporting traces")
	return New(exporter, version)
}

// New returns a Tracer over an exporter, with sampler, queue and limits of the OTEL_* variables.
func New(exporter sdktrace.SpanExporter, version string) *Tracer {
	provider := sdktrace.NewTracerProvider(sdktrace.WithBatcher(exporter), sdktrace.WithResource(describe(version)))
	return &Tracer{provider: provider, spans: provider.Tracer("github.com/notyet/notyet", trace.WithInstrumentationVersion(version), trace.WithSchemaURL(semconv.SchemaURL))}
}

// describe names this program; OTEL_SERVICE_NAME and OTEL_RESOURCE_ATTRIBUTES replace and add.
func describe(version string) *resource.Resource {
	r, err := resource.New(context.Background(), resource.WithAttributes(semconv.ServiceName("notyet"), semconv.ServiceVersion(version)),
		resource.WithTelemetrySDK(), resource.WithFromEnv())
	if err != nil {
		otel.Handle(err) // what could be read of the variables is in r
	}
	return r
}

// stopPatience limits how long Stop waits for a collector that does not answer.
const stopPatience = 2 * time.Second

// Stop exports what is left, within stopPatience. Spans that end later are dropped.
func (t *Tracer) Stop() {
	if t == nil {
		return
	}
	bound, cancel := context.WithTimeout(context.Background(), stopPatience)
	defer cancel()
	if err := t.provider.Shutdown(bound); err != nil {
		otel.Handle(err)
	}
}
