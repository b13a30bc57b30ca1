package tracing_test

import (
	"context"
	"net"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kgo"
	"go.uber.org/zap"
	"go.uber.org/zap/zaptest/observer"
	"google.golang.org/grpc"

	collector "go.opentelemetry.io/proto/otlp/collector/trace/v1"

	"github.com/notyet/notyet/internal/tracing"
	"github.com/notyet/notyet/test/tracingtest"
)

// quiet takes every variable of the environment away that asks for traces.
func quiet(t *testing.T) {
	t.Helper()
	for _, name := range []string{
		"OTEL_SDK_DISABLED", "OTEL_TRACES_EXPORTER", "OTEL_EXPORTER_OTLP_ENDPOINT", "OTEL_EXPORTER_OTLP_TRACES_ENDPOINT", "OTEL_EXPORTER_OTLP_PROTOCOL",
		"OTEL_EXPORTER_OTLP_TRACES_PROTOCOL", "OTEL_EXPORTER_OTLP_METRICS_ENDPOINT", "OTEL_TRACES_SAMPLER", "OTEL_SERVICE_NAME", "OTEL_RESOURCE_ATTRIBUTES",
	} {
		t.Setenv(name, "")
	}
}

func TestOnlyTheEnvironmentTurnsTracesOn(t *testing.T) {
	for name, c := range map[string]struct {
		env  map[string]string
		on   bool
		says string
	}{
		"nothing is set":            {nil, false, ""},
		"an endpoint":               {map[string]string{"OTEL_EXPORTER_OTLP_ENDPOINT": "http://127.0.0.1:1"}, true, ""},
		"an endpoint for traces":    {map[string]string{"OTEL_EXPORTER_OTLP_TRACES_ENDPOINT": "http://127.0.0.1:1/x"}, true, ""},
		"the exporter":              {map[string]string{"OTEL_TRACES_EXPORTER": "otlp"}, true, ""},
		"over grpc":                 {map[string]string{"OTEL_TRACES_EXPORTER": "otlp", "OTEL_EXPORTER_OTLP_PROTOCOL": "grpc"}, true, ""},
		"an endpoint for metrics":   {map[string]string{"OTEL_EXPORTER_OTLP_METRICS_ENDPOINT": "http://127.0.0.1:1"}, false, ""},
		"no exporter":               {map[string]string{"OTEL_EXPORTER_OTLP_ENDPOINT": "http://127.0.0.1:1", "OTEL_TRACES_EXPORTER": "none"}, false, ""},
		"disabled":                  {map[string]string{"OTEL_TRACES_EXPORTER": "otlp", "OTEL_SDK_DISABLED": "True"}, false, ""},
		"an exporter of another":    {map[string]string{"OTEL_TRACES_EXPORTER": "zipkin"}, false, `OTEL_TRACES_EXPORTER "zipkin" is not supported: set it to otlp or none`},
		"a protocol of nobody":      {map[string]string{"OTEL_TRACES_EXPORTER": "otlp", "OTEL_EXPORTER_OTLP_PROTOCOL": "soap"}, false, `OTEL_EXPORTER_OTLP_PROTOCOL "soap" is not supported: set it to http/protobuf, http/json or grpc`},
		"a mistake for traces only": {map[string]string{"OTEL_TRACES_EXPORTER": "otlp", "OTEL_EXPORTER_OTLP_TRACES_PROTOCOL": "x"}, false, `OTEL_EXPORTER_OTLP_TRACES_PROTOCOL "x" is not supported: set it to http/protobuf, http/json or grpc`},
	} {
		t.Run(name, func(t *testing.T) {
			quiet(t)
			for k, v := range c.env {
				t.Setenv(k, v)
			}
			core, logs := observer.New(zap.ErrorLevel)
			tracer := tracing.Start(t.Context(), "1", zap.New(core))
			defer tracer.Stop()
			require.Equal(t, c.on, tracer != nil)
			if c.says == "" {
				require.Empty(t, logs.All())
				return
			}
			require.Len(t, logs.All(), 1)
			require.Equal(t, c.says, logs.All()[0].ContextMap()["error"])
		})
	}
}

func TestSpansReachACollector(t *testing.T) {
	for name, prepare := range map[string]func(*testing.T, *tracingtest.Receiver){
		"over HTTP": func(t *testing.T, r *tracingtest.Receiver) {
			t.Setenv("OTEL_EXPORTER_OTLP_ENDPOINT", r.URL)
			t.Setenv("OTEL_EXPORTER_OTLP_COMPRESSION", "gzip")
		},
		"over gRPC": func(t *testing.T, r *tracingtest.Receiver) {
			l, err := (&net.ListenConfig{}).Listen(t.Context(), "tcp", "127.0.0.1:0")
			require.NoError(t, err)
			s := grpc.NewServer()
			collector.RegisterTraceServiceServer(s, &service{to: r})
			go func() { _ = s.Serve(l) }()
			t.Cleanup(s.Stop)
			t.Setenv("OTEL_EXPORTER_OTLP_ENDPOINT", "http://"+l.Addr().String())
			t.Setenv("OTEL_EXPORTER_OTLP_PROTOCOL", "grpc")
		},
	} {
		t.Run(name, func(t *testing.T) {
			quiet(t)
			r := tracingtest.NewReceiver(t)
			prepare(t, r)
			tracer := tracing.Start(t.Context(), "1", zap.NewNop())
			require.NotNil(t, tracer)
			tracer.Caller(parent(true)).Stored(tracing.Stored{Topic: "notyet.intake"})
			tracer.Stop()
			got := r.Spans()
			require.Len(t, got, 1)
			require.Equal(t, "notyet", got[0].Service)
			require.Equal(t, "store notyet.intake", got[0].Name)
		})
	}
}

type service struct {
	collector.UnimplementedTraceServiceServer
	to *tracingtest.Receiver
}

func (s *service) Export(_ context.Context, q *collector.ExportTraceServiceRequest) (*collector.ExportTraceServiceResponse, error) {
	s.to.Add(q)
	return &collector.ExportTraceServiceResponse{}, nil
}

func TestTheSamplerOfTheEnvironmentHasTheLastWord(t *testing.T) {
	for sampler, spans := range map[string]int{"": 4, "parentbased_always_off": 1, "always_off": 0, "always_on": 4} {
		t.Run(sampler, func(t *testing.T) {
			quiet(t)
			t.Setenv("OTEL_TRACES_SAMPLER", sampler)
			r := tracingtest.Record()
			c := r.Caller(parent(true))
			c.Stored(tracing.Stored{})
			c.Sent(tracing.Delivery{}, 0, 0)
			require.Len(t, r.End(), spans, "a delivery has no parent, so a parent-based sampler decides as for a root")
		})
	}
}

// A collector that does not answer holds up nobody: not those who make spans, and the stop no longer
// than it may.
func TestADeadCollectorHoldsUpNobody(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		dead := tracingtest.Hang()
		caller := dead.Caller(parent(true))
		began := time.Now()
		for range 20_000 { // ten times what the queue holds
			caller.Stored(tracing.Stored{Topic: "notyet.intake"})
		}
		require.Zero(t, time.Since(began))
		time.Sleep(time.Minute)
		require.NotZero(t, dead.Exports())
		began = time.Now()
		dead.Stop()
		require.LessOrEqual(t, time.Since(began), 2*time.Second)
		time.Sleep(10 * time.Minute) // in the background, the SDK gives its batches up one by one
	})
}

func parent(sampled bool) []kgo.RecordHeader {
	return []kgo.RecordHeader{{Key: "own", Value: []byte("x")}, {Key: "traceparent", Value: []byte(tracingtest.Traceparent(sampled))}}
}
