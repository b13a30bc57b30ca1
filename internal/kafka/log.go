package kafka

import (
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/plugin/kzap"
	"go.uber.org/zap"
)

// Logger carries the library's messages to log.
func Logger(log *zap.Logger) kgo.Logger {
	// The library's Info level has a line for every metadata look-up.
	level := func() kgo.LogLevel { // that of the log may change
		if log.Core().Enabled(zap.DebugLevel) {
			return kgo.LogLevelDebug
		}
		return kgo.LogLevelWarn
	}
	return &oncePerMinute{Logger: kzap.New(log.WithOptions(zap.AddCallerSkip(3)), kzap.LevelFn(level)), said: map[string]repeats{}}
}

// oncePerMinute passes each warning about a broker once a minute, with the number of those since.
type oncePerMinute struct {
	kgo.Logger
	mu   sync.Mutex
	said map[string]repeats // by message and broker
}

type repeats struct {
	since time.Time
	n     int
}

// Log implements kgo.Logger.
func (o *oncePerMinute) Log(level kgo.LogLevel, msg string, keyvals ...any) {
	i := slices.Index(keyvals, any("broker"))
	if level != kgo.LogLevelWarn || i < 0 || i+1 == len(keyvals) {
		o.Logger.Log(level, msg, keyvals...)
		return
	}
	what := msg + fmt.Sprint(keyvals[i+1])
	o.mu.Lock()
	r := o.said[what]
	if time.Since(r.since) < time.Minute {
		o.said[what] = repeats{r.since, r.n + 1}
		o.mu.Unlock()
		return
	}
	o.said[what] = repeats{time.Now(), 0}
	o.mu.Unlock()
	if r.n > 0 {
		keyvals = append(slices.Clip(keyvals), "repeated", r.n)
	}
	o.Logger.Log(level, msg, keyvals...)
}
