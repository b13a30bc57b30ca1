package tracing

import (
	"context"
	"fmt"
	"os"
	"strings"

	"go.opentelemetry.io/otel/exporters/otlp/otlptrace/otlptracegrpc"
	"go.opentelemetry.io/otel/exporters/otlp/otlptrace/otlptracehttp"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
)

const (
	envDisabled = "OTEL_SDK_DISABLED"
	envExporter = "OTEL_TRACES_EXPORTER"
	envOTLP     = "OTEL_EXPORTER_OTLP_"
)

// wanted reports whether the environment asks for traces. OpenTelemetry's own default is to export
// to localhost when nothing is set; without being asked, this program exports nothing.
func wanted() bool {
	switch exporter := strings.ToLower(get(envExporter)); {
	case strings.EqualFold(get(envDisabled), "true"):
		return false
	case exporter != "":
		return exporter != "none"
	}
	for _, pair := range os.Environ() {
		name, value, _ := strings.Cut(pair, "=")
		if forTraces(name) && strings.TrimSpace(value) != "" {
			return true
		}
	}
	return false
}

// forTraces reports whether a variable configures OTLP for traces, not for metrics or logs alone.
func forTraces(name string) bool {
	rest, ok := strings.CutPrefix(name, envOTLP)
	return ok && !strings.HasPrefix(rest, "METRICS_") && !strings.HasPrefix(rest, "LOGS_")
}

func get(name string) string { return strings.TrimSpace(os.Getenv(name)) }

// newExporter connects to nothing yet. The exporters read the rest of the variables themselves.
func newExporter(ctx context.Context) (sdktrace.SpanExporter, error) {
	if name := get(envExporter); name != "" && !strings.EqualFold(name, "otlp") {
		return nil, fmt.Errorf("%s %q is not supported: set it to otlp or none", envExporter, name)
	}
	name := envOTLP + "TRACES_PROTOCOL"
	protocol := get(name)
	if protocol == "" {
		name = envOTLP + "PROTOCOL"
		protocol = get(name)
	}
	switch protocol {
	case "", "http/protobuf", "http/json":
		return otlptracehttp.New(ctx)
	case "grpc":
		return otlptracegrpc.New(ctx)
	}
	return nil, fmt.Errorf("%s %q is not supported: set it to http/protobuf, http/json or grpc", name, protocol)
}
