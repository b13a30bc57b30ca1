package index

import (
	"context"
	"fmt"
	"sync/atomic"

	"github.com/redis/go-redis/v9"
	"go.uber.org/zap"
)

// libraryLog passes go-redis's own messages to zap. The library has one logger per process; the
// latest Index provides it.
type libraryLog struct{ to atomic.Pointer[zap.Logger] }

var shared libraryLog

func adaptLog(log *zap.Logger) {
	shared.to.Store(log)
	redis.SetLogger(&shared)
}

func (l *libraryLog) Printf(_ context.Context, format string, v ...any) {
	// Mostly opened and closed connections. The caller also gets important problems as errors.
	l.to.Load().Debug("redis client", zap.String("message", fmt.Sprintf(format, v...)))
}
