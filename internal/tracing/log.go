package tracing

import (
	"sync"
	"time"

	"github.com/go-logr/logr"
	"github.com/go-logr/logr/funcr"
	"go.uber.org/zap"
)

// errorEvery is how often an export's error is logged. An absent collector fails every batch.
const errorEvery = time.Minute

// errorLog logs errors of the export. It is otel.ErrorHandler.
type errorLog struct {
	log *zap.Logger

	mu     sync.Mutex
	next   time.Time // nothing is logged before
	unsaid int       // errors that were not logged since
}

// Handle logs the error, or counts it.
func (l *errorLog) Handle(err error) {
	unsaid, now := l.due(time.Now())
	if now {
		l.log.Error("exporting traces failed", zap.Error(err), zap.Int("errors_before", unsaid))
	}
}

func (l *errorLog) due(now time.Time) (unsaid int, due bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if now.Before(l.next) {
		l.unsaid++
		return 0, false
	}
	unsaid, l.unsaid, l.next = l.unsaid, 0, now.Add(errorEvery)
	return unsaid, true
}

// newLogger passes the SDK's own messages to log, as details.
func newLogger(log *zap.Logger) logr.Logger {
	return funcr.New(func(_, said string) { log.Debug("from the OpenTelemetry SDK", zap.String("said", said)) }, funcr.Options{})
}
