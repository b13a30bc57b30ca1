package tracing

import (
	"sync/atomic"
	"time"

	"github.com/go-logr/logr"
	"github.com/go-logr/logr/funcr"
	"go.uber.org/zap"
	"golang.org/x/time/rate"
)

// errorEvery is how often an export's error is logged. An absent collector fails every batch.
const errorEvery = time.Minute

// errorLog logs errors of the export. It is otel.ErrorHandler.
type errorLog struct {
	log   *zap.Logger
	lines rate.Sometimes
	since atomic.Int64 // errors since the last line
}

func newErrorLog(log *zap.Logger) *errorLog {
	return &errorLog{log: log, lines: rate.Sometimes{Interval: errorEvery}}
}

// Handle logs the error, or counts it.
func (l *errorLog) Handle(err error) {
	l.since.Add(1)
	l.lines.Do(func() {
		l.log.Error("exporting traces failed", zap.Error(err), zap.Int64("errors_before", l.since.Swap(0)-1))
	})
}

// newLogger passes the SDK's own messages to log, as details.
func newLogger(log *zap.Logger) logr.Logger {
	return funcr.New(func(_, said string) { log.Debug("from the OpenTelemetry SDK", zap.String("said", said)) }, funcr.Options{})
}
